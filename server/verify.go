package server

import (
	"encoding/json"
	"time"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// codeValid is the code of a key that passes all checks. Otherwise the code names the first check that fails, as in the
// response to a request with the key.
const codeValid = "valid"

type verifyBody struct {
	Valid                  bool            `json:"valid"`
	Code                   string          `json:"code"`
	KeyID                  *string         `json:"key_id"` // this and the fields below are null if the key may not be used at all
	KeyExternalID          *string         `json:"key_external_id"`
	UserID                 *string         `json:"user_id"`
	OrganizationID         *string         `json:"organization_id"`
	OrganizationExternalID *string         `json:"organization_external_id"` // the customer, as the host product knows it
	Scope                  *string         `json:"scope"`                    // the permissions of the key now: in its scope, and in the role of its creator
	Plan                   *string         `json:"plan"`
	Metadata               json.RawMessage `json:"metadata"`   // what the key was created with
	RateLimit              *rateWindowBody `json:"rate_limit"` // null if the plan has no limit
}

type rateWindowBody struct {
	Limit     int64         `json:"limit"`
	Remaining int64         `json:"remaining"`
	ResetAt   exchange.Time `json:"reset_at"`
}

// verifyKey makes the checks of a request with the key and counts one request of its window. The status is 200 whether the key is valid or
// not: the response is about the key, not about the caller, whose clients send what they like. So the caller is not throttled for invalid keys
// either. A body of more than 64 KiB is refused as everywhere.
func (h *handlers) verifyKey(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("key")
	raw, needed, client := f.Text("key", maxSmallBody), h.lookup.Scope(x.Request.Context(), f, "permission"), f.Address("client_ip")
	if err := f.Err(); err != nil {
		return err
	}
	run := check.Run{Presented: credential.ParseKey(*raw), Needed: needed, Client: client, Last: access.CheckPermission}
	code, err := outcome(h.checker.Check(x.Request.Context(), &run))
	if err != nil {
		return err
	}
	body := verifyBody{Valid: code == codeValid, Code: code}
	if run.Authenticated {
		body.describe(&run)
	}
	x.NoStore() // the response is about a credential
	return x.OK(body)
}

// maxShownKey is the most characters that are read as a credential, or as the name of a key.
const maxShownKey = 512

// outcome returns the code of what the checks of a key decided. An error means that a check could not be made.
func outcome(err error) (code string, _ error) {
	switch fault.KindOf(err) {
	case fault.Unauthenticated, fault.Forbidden, fault.Limited:
		refused, _ := fault.As(err)
		return refused.Code, nil
	}
	return codeValid, err
}

func (body *verifyBody) describe(run *check.Run) {
	p := &run.Principal
	scope := p.Permissions.String()
	body.KeyExternalID, body.OrganizationExternalID = p.Key.ExternalID, p.Organization.ExternalID
	body.KeyID, body.UserID, body.OrganizationID = &p.Key.ID, &p.User.ID, &p.Organization.ID
	body.Scope, body.Plan, body.Metadata = &scope, &p.Plan.Name, json.RawMessage(p.Key.Metadata)
	if run.Windowed && run.At >= access.CheckRateLimit {
		w := run.Window
		if w.Allowed && body.Code == check.CodeRateLimited {
			w = run.OrganizationWindow // it refuses
		}
		body.RateLimit = &rateWindowBody{w.Limit, w.Remaining, exchange.Time(time.Now().Add(w.Reset).UnixMilli())}
	}
}
