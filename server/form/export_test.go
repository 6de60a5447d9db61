package form

// Split returns the names and values of the JSON object in a body.
func Split(body []byte) (members map[string]string, err error) {
	f := Parse(body)
	if f.failed != nil {
		return nil, f.failed
	}
	members = map[string]string{}
	for _, m := range f.members {
		members[string(m.name)] = string(m.value)
	}
	return members, nil
}
