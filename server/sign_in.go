package server

import (
	"cmp"
	"context"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// SignIn signs in people with an identity provider, in two steps. It does not know which of them are users.
type SignIn interface {
	// Begin returns the URL to which the browser must go, and a text that the browser must keep for Finish.
	Begin(to string) (redirect, sealed string, err error)
	// Finish returns the person who has signed in, and to from Begin. answer is the query with which the browser comes back. It
	// returns Unauthenticated if this browser has not begun the sign-in, or if the issuer has not confirmed it, and Unavailable if
	// that cannot be found out.
	Finish(ctx context.Context, sealed string, answer url.Values) (who access.Identity, to string, err error)
}

const signInLife = 10 * time.Minute

func (h *handlers) beginSignIn(c *call) error {
	to := c.Query.Matching("to", "must be a path of the console, such as /console/events/", isConsolePage)
	if err := c.Query.Err(); err != nil {
		return err
	}
	redirect, sealed, err := h.options.SignIn.Begin(cmp.Or(to, console.Path))
	if err != nil {
		return h.explainSignIn(c, err)
	}
	provider, err := url.Parse(redirect)
	if err != nil {
		return err
	}
	h.cookies.SetSignIn(c, c.Request, stateOf(provider), sealed, signInLife)
	c.Redirect(redirect)
	return nil
}

// stateOf returns the state of a sign-in. The URL of the identity provider has it, and so has the URL with which the browser comes back.
func stateOf(u *url.URL) string { return u.Query().Get("state") }

func (h *handlers) finishSignIn(c *call) error {
	who, to, err := h.askProvider(c)
	if err == nil {
		err = h.startIdentitySession(c, who)
	}
	if err != nil {
		return h.explainSignIn(c, err)
	}
	h.cookies.ClearSignIn(c, c.Request, stateOf(c.Request.URL))
	if !isConsolePage(to) {
		to = console.Path
	}
	c.Redirect(h.base + to)
	return nil
}

// askProvider returns the person who has signed in. A browser with a cookie can make the server ask the identity provider about any
// code, also many times at once. So each request counts as a failure of its address, until the provider accepts it or does not answer.
// Any site can send a browser here without the cookie, so that is no failure.
func (h *handlers) askProvider(c *call) (who access.Identity, to string, err error) {
	sealed := h.cookies.SignIn(c.Request, stateOf(c.Request.URL))
	if sealed != "" {
		if err := h.countFailure(c); err != nil {
			return who, "", err
		}
	}
	who, to, err = h.options.SignIn.Finish(c.Request.Context(), sealed, c.Request.URL.Query())
	if sealed != "" && fault.KindOf(err) != fault.Unauthenticated && c.Request.Context().Err() == nil { // who leaves has asked, too
		h.checker.TakeBackFailure(c.Client)
	}
	return who, to, err
}

// startIdentitySession starts the session of an identity, if all checks of a credential pass.
func (h *handlers) startIdentitySession(c *call, who access.Identity) error {
	cookie := access.MintSession()
	c.run.Presented, c.run.Identity = credential.Presented{Kind: credential.SignIn, Credential: cookie}, who
	c.run.Last = access.CheckRateLimit
	if err := h.admit(c); err != nil {
		return err
	}
	session, err := h.options.Store.CreateIdentitySession(c.Request.Context(), *c.Principal, who, c.Actor(), cookie)
	if err != nil {
		return err
	}
	c.Principal.Session = &session
	h.cookies.Set(c, c.Request, cookie, session)
	return nil
}

// explainSignIn ends a sign-in and sends the browser to the console, which explains the code of a refusal. Failures of the server itself
// stay errors.
func (h *handlers) explainSignIn(c *call, err error) error {
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.Internal {
		return err
	}
	c.Code, c.Cause = f.Code, cmp.Or(f.Unwrap(), error(f))
	h.cookies.ClearSignIn(c, c.Request, stateOf(c.Request.URL))
	c.Redirect(h.base + console.Path + "?" + url.Values{"error": {f.Code}, "request_id": {c.ID}}.Encode())
	return nil
}

// maxPage is the most bytes of the path to which a sign-in leads. The cookie has to hold it.
const maxPage = 2000

const callbackPath = console.Path + "oidc/callback/"

// CallbackURL returns the URL to which the identity provider sends a browser back. base is where browsers reach the server.
func CallbackURL(base string) string { return strings.TrimSuffix(base, "/") + callbackPath }

// isConsolePage reports whether a text is the path of a page of the console, with or without a query. A browser must not be sent to any
// other place: it would trust that place, because the link to it begins with our address.
func isConsolePage(text string) bool {
	encoded := !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' || r == '#' })
	u, err := url.Parse(text)
	if err != nil || !encoded || len(text) > maxPage || u.IsAbs() || u.Host != "" || strings.Contains(u.Path, "\\") {
		return false
	}
	return strings.TrimSuffix(path.Clean(u.Path), "/") == strings.TrimSuffix(u.Path, "/") && isConsole(u.Path)
}
