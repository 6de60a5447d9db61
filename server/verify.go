package server

import (
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// verification is the endpoint by which a back end asks what a key that was shown to it is good for.
type verification struct {
	*Server
	named form.Lookup
}

const verifyPath = "/api/v1/auth/verify/"

// codeValid is the code of a key that passes every check. Any other is that of the first check that fails, as a request
// with the key would be told.
const codeValid = "valid"

type verifyBody struct {
	Valid          bool            `json:"valid"`
	Code           string          `json:"code"`
	KeyID          *string         `json:"key_id"` // null, like all that follows, where the key may not be used at all
	UserID         *string         `json:"user_id"`
	OrganizationID *string         `json:"organization_id"`
	Scope          *string         `json:"scope"` // what the key may do now: its scope, and what its creator holds
	Plan           *string         `json:"plan"`
	RateLimit      *rateWindowBody `json:"rate_limit"` // null for a plan without a limit
}

// rateWindowBody is the window of a key after it was counted.
type rateWindowBody struct {
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	ResetAt   instant `json:"reset_at"`
}

// verify judges the key by the checks of a request with it, in their order, and counts one request of its window. The
// answer is 200 whatever the verdict: it is about the key, not about the asker. Nobody is throttled for what customers show.
func (h verification) verify(c *call) error {
	f, err := c.form()
	if err != nil {
		return err
	}
	f.Require("key")
	raw, asked := f.Text("key", maxShownKey), h.named.Scope(c.request.Context(), f, "permission")
	if err := f.Err(); err != nil {
		return err
	}
	body, err := h.ask(c, *raw, asked)
	if err != nil {
		return err
	}
	c.secret() // the answer is about a credential
	return c.ok(body)
}

// maxShownKey bounds what is looked at as a key, in characters.
const maxShownKey = 512

// ask makes the checks; asked are the permissions that the key must have. An error is a failure to make them.
func (h verification) ask(c *call, raw string, asked access.Scope) (verifyBody, error) {
	ctx, t := c.request.Context(), trial{wanted: asked}
	credential, err := apiKey(raw)
	if err == nil {
		err = h.judge(ctx, t.lookUp(credential.Digest()), access.CheckCreator)
	}
	if e, ok := fault.As(err); ok && e.Kind == fault.Unauthenticated {
		return verifyBody{Code: e.Code}, nil
	}
	if err != nil {
		return verifyBody{}, unreadable(err)
	}
	p := t.principal
	h.store.Used(p)
	scope := p.Permissions.String()
	body := verifyBody{
		KeyID: &p.Key.ID, UserID: &p.User.ID, OrganizationID: &p.Organization.ID, Scope: &scope, Plan: &p.Plan.Name,
		Valid: true, Code: codeValid,
	}
	if err := h.judge(ctx, &t, access.CheckPermission); err != nil {
		e, ok := fault.As(err)
		if !ok {
			return verifyBody{}, err
		}
		body.Valid, body.Code = false, e.Code
	}
	if t.windowed && t.at >= access.CheckRateLimit {
		body.RateLimit = newRateWindowBody(t.window)
	}
	return body, nil
}

func newRateWindowBody(r limiter.Result) *rateWindowBody {
	return &rateWindowBody{r.Limit, r.Remaining, instant(time.Now().Add(r.Reset).UnixMilli())}
}
