package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/fault"
)

// Problem is the body of a response that is no success (RFC 9457). It is the error of a refused request; find it with errors.As.
type Problem struct {
	Title         string `json:"title"`
	Detail        string `json:"detail"`
	Code          string `json:"code"`
	RequestID     string `json:"request_id"`
	ConflictingID string `json:"conflicting_id"` // the id, name or key of what exists already
	Errors        []struct {
		Field   string `json:"field"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"errors"`
}

// Error returns the problem in one line, followed by a line for each field.
func (p Problem) Error() string {
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
	p, is := errors.AsType[Problem](err)
	return is && p.Code == "not_found"
}

// Refusal returns the error for a response that is no success.
func (c Client) Refusal(r Response) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var p Problem
	if kind != "application/problem+json" || json.Unmarshal(r.Body, &p) != nil {
		return fault.Advise(fmt.Errorf("the response (%d %s) does not come from Keyhook", r.Status, http.StatusText(r.Status)), "check --%s", FlagURL)
	}
	return p
}

// adviseLocal says why the server of a database on this machine does not respond, and what to do.
func adviseLocal(err error, database, path string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.Advise(fmt.Errorf("the socket %s belongs to another user", path),
			"run this command as that user or as root, or give --%s and --%s", FlagURL, FlagToken)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fault.Advise(fmt.Errorf("no server is running for %s (socket %s)", database, path),
			"start the server with \"keyhook serve\", give another database with --storage.path, or give --%s and --%s", FlagURL, FlagToken)
	case errors.Is(err, socket.ErrForeignProcess):
		return err
	}
	return fault.Advise(fmt.Errorf("the server of the database %s does not respond: %w", database, err), "look at the log of the server")
}
