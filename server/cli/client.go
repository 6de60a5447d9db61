package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// object is a JSON object to send.
type object map[string]any

// created is the part that all answers to a creation share.
type created struct {
	ID string `json:"id"`
}

// client calls the HTTP API with one credential.
type client struct {
	base          string // without a slash at the end
	authorization string
}

// transport connects to a server that the operator named: no guard is needed, and no proxy is wanted in between.
var transport = &http.Transport{MaxIdleConnsPerHost: 8}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 16 << 20

// call sends a request, with body as JSON unless it is nil, expects the given status, and reads the answer into result
// unless that is nil.
func (c client) call(ctx context.Context, method, path string, body any, status int, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", c.authorization)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s %s: answered %d where %d was expected: %s", method, path, resp.StatusCode, status, text)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
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
