package cli

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
)

// problem is what the API says when it does not do what was asked (RFC 9457).
type problem struct {
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// Error returns what is wrong in one line, and a line for each field below it.
func (p problem) Error() string {
	var b strings.Builder
	detail := output.Escape(p.Detail)
	if len(p.Errors) == 1 && p.Errors[0].Message == p.Detail { // said once is enough
		detail, p.Errors = output.Escape(p.Errors[0].Field)+": "+detail, nil
	}
	fmt.Fprintf(&b, "%s: %s (%s, request %s)", output.Escape(p.Title), detail, output.Escape(p.Code), output.Escape(p.RequestID))
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", output.Escape(e.Field), output.Escape(e.Message))
	}
	return b.String()
}

// refused returns the error of an answer that is not a success.
func (c client) refused(a answer) error {
	if a.status >= 300 && a.status < 400 {
		return fmt.Errorf("%s redirects to %s: use the address that answers as --%s", c.base, output.Quote(a.header.Get("Location")), flagURL)
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	var p problem
	if kind != "application/problem+json" || json.Unmarshal(a.body, &p) != nil {
		return fmt.Errorf("the answer is %d %s, and not one of Keyhook's: check --%s", a.status, http.StatusText(a.status), flagURL)
	}
	return p
}
