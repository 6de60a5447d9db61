package seal

// ActiveID returns the id of the key that seals.
func (r *Ring) ActiveID() string { return r.keys[0].id }
