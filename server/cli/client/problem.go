package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// problem is the body of a response that is no success (RFC 9457).
type problem struct {
	Title         string `json:"title"`
	Detail        string `json:"detail"`
	Code          string `json:"code"`
	RequestID     string `json:"request_id"`
	ConflictingID string `json:"conflicting_id"` // the id, name or key of what exists already
	Errors        []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// Error returns the problem in one line, followed by a line for each field.
func (p problem) Error() string {
	var b strings.Builder
	detail := output.Escape(p.Detail)
	if len(p.Errors) == 1 && p.Errors[0].Message == p.Detail { // do not repeat the sentence
		detail, p.Errors = output.Escape(p.Errors[0].Field)+": "+detail, nil
	}
	fmt.Fprintf(&b, "%s: %s (%s, request %s)", output.Escape(p.Title), detail, output.Escape(p.Code), output.Escape(p.RequestID))
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", output.Escape(e.Field), output.Escape(e.Message))
	}
	if p.ConflictingID != "" {
		fmt.Fprintf(&b, "\n  conflicting_id: %s", output.Escape(p.ConflictingID))
	}
	return b.String()
}

// IsNotFound reports whether the server refused a request because it does not find an id.
func IsNotFound(err error) bool {
	p, is := errors.AsType[problem](err)
	return is && p.Code == "not_found"
}

// Refusal returns the error for a response that is no success.
func (c Client) Refusal(r Response) error {
	if r.Status >= 300 && r.Status < 400 {
		return fault.Advise(fmt.Errorf("%s redirects to %s", c.Base, output.Quote(r.Header.Get("Location"))), "give that URL with --%s", FlagURL)
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var p problem
	if kind != "application/problem+json" || json.Unmarshal(r.Body, &p) != nil {
		return fault.Advise(fmt.Errorf("the response (%d %s) does not come from Keyhook", r.Status, http.StatusText(r.Status)), "check --%s", FlagURL)
	}
	return p
}
