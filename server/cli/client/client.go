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
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/access"
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

// Lines reads a path, and calls do for each line of the response of a media type, however many. Statuses are errors as in Do.
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
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Authorization": c.Authorization, "X-Organization-Id": c.Organization, "Accept": mediaType} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := cmp.Or[http.RoundTripper](c.Transport, transport).RoundTrip(req)
	if err != nil && c.advise != nil {
		err = c.advise(err)
	}
	return resp, err
}

// Do makes one request and returns the body of its response. A status other than success is an error, which says what the server says.
func (c Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := c.Send(ctx, method, path, body)
	if err == nil && !r.OK() {
		return nil, c.Refusal(r)
	}
	return r.Body, err
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
		query.Set("limit", strconv.Itoa(min(items-len(list.Data), 200))) // the API returns at most 200 in one page
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		body, err := c.Do(ctx, "GET", u.EscapedPath()+"?"+query.Encode(), nil)
		if err != nil {
			return list, err
		}
		next := Page{}
		if err := json.Unmarshal(body, &next); err != nil {
			return list, fault.Advise(errors.New("the response is not a list, so it does not come from Keyhook"), AdviceURL)
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

// The flags and variables that name the server, the credential and the organization.
const (
	FlagURL          = "url"
	FlagToken        = "token"
	FlagOrganization = "organization"
	EnvURL           = "KEYHOOK_URL"
	EnvToken         = "KEYHOOK_TOKEN"
)

// Flags gives cmd, and all commands below it, the flags that Connect reads.
func Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	config.DatabaseFlags(flags)
	flags.String(FlagURL, "", "`URL` of a server on another machine (or "+EnvURL+"); needs --"+FlagToken)
	flags.String(FlagToken, "", "access `token` or API key (or "+EnvToken+", which is safer: ps shows flags)")
	flags.String(FlagOrganization, "", "act in the organization with this `id` or external id; the lists of keys, subscriptions, events, audit events and usage also take all")
}

// Connect returns the client that the flags and the environment ask for: for the server that owns the database, over its
// local socket, or for a server at a URL. Connect does not make the connection yet.
func Connect(cmd *cobra.Command) (Client, error) {
	flags := cmd.Flags()
	for _, name := range []string{FlagURL, FlagToken, FlagOrganization} {
		// An empty value is mostly a variable that is not set. Without it, the command would act on another server or organization.
		if f := flags.Lookup(name); f.Changed && f.Value.Type() == "string" && f.Value.String() == "" {
			return Client{}, usage("--%s is empty; give a value, or leave the flag out", name)
		}
	}
	c := Client{Organization: flags.Lookup(FlagOrganization).Value.String()}
	address := os.Getenv(EnvURL)
	if u := flags.Lookup(FlagURL).Value; u.Type() == "string" { // some commands have a --url of another type, which is a field of the API
		address = cmp.Or(u.String(), address)
	}
	token := cmp.Or(flags.Lookup(FlagToken).Value.String(), os.Getenv(EnvToken))
	switch {
	case address == "" && token == "":
		return local(cmd, c)
	case token == "":
		return c, usage("a URL needs a token; give --%s, or set %s; for the server on this machine, unset %s", FlagToken, EnvToken, EnvURL)
	case address == "":
		return c, usage("a token needs a URL; give --%s, or set %s; for the server on this machine, unset %s", FlagURL, EnvURL, EnvToken)
	}
	return c.At(address, token)
}

func usage(format string, args ...any) error {
	return output.UsageError{Err: fmt.Errorf(format, args...)}
}

// local returns the client for the server that owns the database of the settings.
func local(cmd *cobra.Command, c Client) (Client, error) {
	settings, err := config.Load(cmd.Flags())
	if err != nil {
		return c, err
	}
	path, err := socket.Path(settings.Storage.Path)
	if err != nil {
		return c, err
	}
	c.Base = "http://local" // a name for messages; the transport connects to the socket
	c.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, path)
	}}
	c.advise = func(err error) error { return adviseLocal(err, settings.Storage.Path, path) }
	return c, nil
}

// At returns the client for a server at a URL.
func (c Client) At(address, token string) (Client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return c, usage("the URL of a server must be such as https://keys.example.com, without a user, a query and a fragment")
	case !access.IsVisible(token):
		return c, usage("the token contains a space or another wrong character; copy the token again")
	}
	c.Base = strings.TrimSuffix(address, "/")
	c.Authorization = authorization(token)
	c.advise = func(err error) error {
		return fault.Advise(fmt.Errorf("cannot reach %s: %w", c.Base, err), "check this URL, and whether the server is running")
	}
	return c, nil
}

// authorization returns the header for a credential: the scheme ApiKey for API keys, and Bearer for everything else.
func authorization(credential string) string {
	prefix, isMinted := access.LooksMinted(credential)
	if strings.HasPrefix(credential, access.DefaultKeyPrefix+"_") || isMinted && prefix != access.TokenPrefix {
		return "ApiKey " + credential
	}
	return "Bearer " + credential
}

// Problem is the body of a response that is no success (RFC 9457). It is the error of a refused request; find it with errors.As.
type Problem struct {
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

// Mend says what to do about a refusal, from its code, where a flag of a command or a setting of the server can change it.
func Mend(code string) string {
	switch code {
	case "not_found":
		return "check the id"
	case "not_a_member":
		return "give --" + FlagOrganization + " with an organization of this user"
	case "https_required", "address_not_allowed":
		return "or allow it on the server: egress.allow_http, egress.allowed_networks, or serve --dev on a machine for development"
	}
	return ""
}

// AdviceURL is the advice after a response that does not come from Keyhook. The URL may come from a flag or from the environment.
const AdviceURL = "check the URL of the server"

// Refusal returns the error for a response that is no success.
func (c Client) Refusal(r Response) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var p Problem
	if kind != "application/problem+json" || json.Unmarshal(r.Body, &p) != nil {
		return fault.Advise(fmt.Errorf("the response (%d %s) does not come from Keyhook", r.Status, http.StatusText(r.Status)), AdviceURL)
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
			"start the server with \"keyhook serve\" (restart it if its socket was removed), give another database with --storage.path, or give --%s and --%s", FlagURL, FlagToken)
	case errors.Is(err, socket.ErrForeignProcess):
		return err
	}
	return fault.Advise(fmt.Errorf("the server of the database %s does not respond: %w", database, err), "look at the log of the server")
}
