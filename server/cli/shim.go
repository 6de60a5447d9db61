package cli

// object is a JSON object to send.
type object map[string]any

// created is the part that all responses to a creation share.
type created struct {
	ID string `json:"id"`
}
