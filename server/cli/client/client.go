// Package client owns the calls of the commands to the HTTP API: over the local socket, or at the URL of another server. It
// does not know the resources of the API.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// Client calls the API of one server with one credential. Connect makes one from the flags of a command. A literal with
// Base and Authorization is ready for use.
type Client struct {
	Base          string            // the URL of the server, without a slash at the end
	Authorization string            // the header; empty sends none
	Organization  string            // the id or external id of the organization to act in; empty means the organization of the credential
	Transport     http.RoundTripper // nil means one that all clients share

	advise func(error) error // says what to do if the server does not respond; nil leaves the error as it is
}

// transport connects to a server that the operator named. It uses no proxy, and needs no guard against inner networks.
var transport = &http.Transport{
	MaxIdleConnsPerHost: 8,
	DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
	TLSHandshakeTimeout: connectTimeout,
}

// connectTimeout bounds the connection to a server, not the response: some requests take long.
const connectTimeout = 10 * time.Second

// MaxBody is the largest response that is read, in bytes.
const MaxBody = 16 << 20

// Response is a response with its body.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// OK reports whether the request succeeded.
func (r Response) OK() bool { return r.Status >= 200 && r.Status < 300 }

// Send makes one request and returns the response with any status. A body is sent as JSON; nil sends none. Redirects
// are not followed, because the credential would go to another server.
func (c Client) Send(ctx context.Context, method, path string, body []byte) (Response, error) {
	resp, err := c.open(ctx, method, path, "", body)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	return read(resp)
}

// Lines reads a path, and calls do for each line of the response of a media type, however many they are. A status other than success is
// an error, as in Do.
func (c Client) Lines(ctx context.Context, path, mediaType string, do func(line string) error) error {
	resp, err := c.open(ctx, http.MethodGet, path, mediaType, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r, err := read(resp)
		return cmp.Or(err, c.Refusal(r))
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if err := do(lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("GET %s: the response is not complete: %w", path, err)
	}
	return nil
}

// read reads a response.
func read(resp *http.Response) (Response, error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err == nil && len(text) > MaxBody {
		err = errors.New("the response is larger than 16 MiB")
	}
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: read the response: %w", resp.Request.Method, resp.Request.URL.RequestURI(), err)
	}
	return Response{resp.StatusCode, resp.Header, text}, nil
}

// open makes one request and returns the response with its body unread. An empty media type accepts any.
func (c Client) open(ctx context.Context, method, path, mediaType string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, content)
	if err != nil {
		return nil, err
	}
	if c.Authorization != "" {
		req.Header.Set("Authorization", c.Authorization)
	}
	if c.Organization != "" {
		req.Header.Set("X-Organization-Id", c.Organization)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if mediaType != "" {
		req.Header.Set("Accept", mediaType)
	}
	resp, err := cmp.Or[http.RoundTripper](c.Transport, transport).RoundTrip(req)
	if err != nil && c.advise != nil {
		err = c.advise(err)
	}
	return resp, err
}

// Do makes one request and returns the body of its response. A status other than success is an error, which says what the
// server says.
func (c Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := c.Send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if !r.OK() {
		return nil, c.Refusal(r)
	}
	return r.Body, nil
}

// Call makes one request with body as JSON, unless body is nil. It expects the given status, and decodes the body of a success into
// result, unless result is nil or there is no body.
func (c Client) Call(ctx context.Context, method, path string, body any, status int, result any) error {
	var content []byte
	var err error
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := c.Send(ctx, method, path, content)
	switch {
	case err != nil:
		return err
	case r.Status != status && !r.OK():
		return fmt.Errorf("%s %s: %w", method, path, c.Refusal(r))
	case r.Status != status:
		return fmt.Errorf("%s %s: the status is %d instead of %d", method, path, r.Status, status)
	case result == nil || !r.OK() || len(r.Body) == 0:
		return nil
	}
	if err := json.Unmarshal(r.Body, result); err != nil {
		return fmt.Errorf("%s %s: decode the response: %w", method, path, err)
	}
	return nil
}

// PageItems is the number of items that the API returns at most in one page.
const PageItems = 200

// Page is a list of the API: one page of it, or several that were read one after another.
type Page struct {
	Data       []json.RawMessage `json:"data"`
	HasMore    bool              `json:"has_more"`
	NextCursor *string           `json:"next_cursor"`
	Notice     string            `json:"notice,omitempty"` // why the list is empty; empty if nothing says so
}

// List reads at most items entries of the list at a path, from a cursor on. An empty cursor means the start of the list.
func (c Client) List(ctx context.Context, path, cursor string, items int) (Page, error) {
	list := Page{Data: []json.RawMessage{}}
	u, err := url.Parse(path)
	if err != nil {
		return list, err
	}
	for {
		query := u.Query()
		query.Set("limit", strconv.Itoa(min(items-len(list.Data), PageItems)))
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		body, err := c.Do(ctx, "GET", u.EscapedPath()+"?"+query.Encode(), nil)
		if err != nil {
			return list, err
		}
		next := Page{}
		if err := json.Unmarshal(body, &next); err != nil {
			return list, fault.Advise(errors.New("the response is not a list, so it does not come from Keyhook"), "check --%s", FlagURL)
		}
		list.Data = append(list.Data, next.Data...)
		list.HasMore, list.NextCursor, list.Notice = next.HasMore, next.NextCursor, next.Notice
		// An empty page may have more behind it: the server reads one part of a long log for each page.
		if !next.HasMore || next.NextCursor == nil || *next.NextCursor == cursor || len(list.Data) >= items {
			return list, nil
		}
		cursor = *next.NextCursor
	}
}
