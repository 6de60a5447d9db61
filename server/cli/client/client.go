package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// object is a JSON object to send.
type object map[string]any

// created is the part that all answers to a creation share.
type created struct {
	ID string `json:"id"`
}

// client calls the HTTP API with one credential, or over the local socket, where none is needed.
type client struct {
	base          string            // without a slash at the end
	authorization string            // empty sends none
	organization  string            // id of the one to act in; empty is the credential's own
	transport     http.RoundTripper // nil is transport
	explain       func(error) error // says what to do where no answer came; nil leaves the error as it is
}

// transport connects to a server that the operator named: no guard is needed, and no proxy is wanted in between.
var transport = &http.Transport{
	MaxIdleConnsPerHost: 8,
	DialContext:         (&net.Dialer{Timeout: connectLimit}).DialContext,
	TLSHandshakeTimeout: connectLimit,
}

// connectLimit bounds how long it may take to reach a server. What it then takes to answer depends on the question.
const connectLimit = 10 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 20

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ok reports whether the server has done what was asked.
func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// send makes one request, with body as JSON unless it is nil. A redirect is not followed: it would take the credential
// to where nobody sent it.
func (c client) send(ctx context.Context, method, path string, body []byte) (a answer, err error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return a, err
	}
	if c.authorization != "" {
		req.Header.Set("Authorization", c.authorization)
	}
	if c.organization != "" {
		req.Header.Set("X-Organization-Id", c.organization)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	var over http.RoundTripper = transport
	if c.transport != nil {
		over = c.transport
	}
	resp, err := over.RoundTrip(req)
	if err != nil {
		if c.explain != nil {
			err = c.explain(err)
		}
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = errors.New("it is larger than 16 MiB")
	}
	if err != nil {
		return a, fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, text}, nil
}

// call sends a request, with body as JSON unless it is nil, expects the given status, and reads the answer into result
// unless that is nil.
func (c client) call(ctx context.Context, method, path string, body any, status int, result any) error {
	var content []byte
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = text
	}
	a, err := c.send(ctx, method, path, content)
	if err != nil {
		return err
	}
	if a.status != status {
		return fmt.Errorf("%s %s: answered %d where %d was expected: %s", method, path, a.status, status, a.body)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.body, result); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// expect compares what was shown with what should be.
func expect(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, not %q", what, got, want)
	}
	return nil
}
