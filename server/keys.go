package server

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/storage/access"
)

type keyBody struct {
	ID                     string          `json:"id"`
	Name                   string          `json:"name"`
	Scope                  string          `json:"scope"`
	KeyPrefix              string          `json:"key_prefix"`
	Status                 string          `json:"status"`
	OrganizationID         string          `json:"organization_id"`
	OrganizationExternalID *string         `json:"organization_external_id"`
	OrganizationName       string          `json:"organization_name"`
	CreatedBy              string          `json:"created_by"`
	Creator                keyCreator      `json:"creator"`
	CreatedAt              exchange.Time   `json:"created_at"`
	ExpiresAt              *exchange.Time  `json:"expires_at"`
	LastUsedAt             *exchange.Time  `json:"last_used_at"`
	RevokedAt              *exchange.Time  `json:"revoked_at"`
	Metadata               json.RawMessage `json:"metadata"`    // the organization's own
	ExternalID             *string         `json:"external_id"` // the organization's own; null when the key has ended
	Networks               []string        `json:"allowed_networks"`
	Replaces               *string         `json:"replaces"`   // the key that was rotated into this one
	RotatedTo              *string         `json:"rotated_to"` // the key that this one was rotated into
}

type keyCreator struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// createdKeyBody is the response to creating or rotating a key. No other response shows a raw key.
type createdKeyBody struct {
	keyBody
	ScopeNotGranted string `json:"scope_not_granted"`
	Key             string `json:"key"`
}

func newKeyBody(k access.Key) keyBody {
	status := k.Status(time.Now().UnixMilli())
	if status != access.Active {
		k.ExternalID = nil // another key may have it
	}
	return keyBody{
		ID: k.ID, Name: k.Name, Scope: k.Scope.String(), KeyPrefix: k.KeyPrefix, Status: string(status), ExternalID: k.ExternalID,
		OrganizationID: k.OrganizationID, OrganizationExternalID: k.OrganizationExternalID, OrganizationName: k.OrganizationName, CreatedBy: k.CreatedBy, Creator: keyCreator{k.CreatorName, platform.UserKind(k.CreatorIsService)}, CreatedAt: exchange.Time(k.CreatedAt),
		ExpiresAt: (*exchange.Time)(k.ExpiresAt), LastUsedAt: (*exchange.Time)(k.LastUsedAt), RevokedAt: (*exchange.Time)(k.RevokedAt),
		Metadata: json.RawMessage(k.Metadata), Networks: k.AllowedNetworks.Texts(), Replaces: k.Replaces, RotatedTo: k.RotatedTo,
	}
}

func (h *handlers) createKey(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("name", "scope")
	name, scope, expires := f.Label("name"), h.lookup.Scope(x.Request.Context(), f, "scope"), f.Expiry("expires_at")
	metadata := f.Object("metadata", access.MaxMetadata)
	owner, external, networks := f.Line("user_id", access.MaxExternalID), f.ExternalID("external_id"), f.Networks("allowed_networks")
	if err := f.Err(); err != nil {
		return err
	}
	credential := access.Mint(h.options.KeyPrefix)
	key, err := h.options.Store.CreateKey(x.Request.Context(), *x.Principal, x.Actor(), access.NewKey{
		Credential: credential, User: form.Or(owner, ""), Name: *name, Scope: scope, ExpiresAt: expires, Metadata: string(metadata),
		ExternalID: access.NullIfEmpty(form.Or(external, "")), AllowedNetworks: networks,
	})
	if err != nil {
		return err
	}
	return createdKey(x, key, scope.Minus(key.Scope), credential)
}

func createdKey(x *exchange.Exchange, key access.Key, notGranted access.Scope, credential access.Credential) error {
	x.NoStore()
	return x.Created("/api/v1/api-keys/"+key.ID+"/", createdKeyBody{
		keyBody: newKeyBody(key), ScopeNotGranted: notGranted.String(), Key: credential.Reveal(),
	})
}

func (h *handlers) listKeys(x *exchange.Exchange) error {
	filter := readKeyFilter(&x.Query)
	organization := x.ListOrganization()
	list := func(ctx context.Context, before int64, limit int) (access.Page[access.Key], error) {
		filter.Before, filter.Limit = before, limit
		return h.options.Store.KeyPage(ctx, organization, filter)
	}
	return exchange.SearchRows(x, list, newKeyBody, func(k access.Key) int64 { return k.RowID })
}

const longestUnused = 10 * 365 * 24 * time.Hour

// readKeyFilter reads the filters of the list. Somebody who looks for a prefix wants to find the key in any status.
func readKeyFilter(q *form.Query) access.KeyFilter {
	const anyStatus = "all"
	otherwise := string(access.Active)
	prefix, found := q.Value("prefix")
	if found {
		display, ok := access.ParseDisplay(prefix)
		if !ok {
			q.Refuse("prefix", "must be the key_prefix of an API key, such as svc_AbCdEf")
		}
		prefix, otherwise = display, anyStatus
	}
	status := q.Choice("status", otherwise, string(access.Active), string(access.Revoked), string(access.Expired), anyStatus)
	if status == anyStatus {
		status = ""
	}
	f := access.KeyFilter{Status: access.Status(status), Now: time.Now().UnixMilli(), Prefix: prefix}
	if text := q.Matching("unused_for", "must be a duration of more than 0 and at most 87600h, such as 2160h", func(text string) bool {
		d, err := time.ParseDuration(text)
		return err == nil && d > 0 && d <= longestUnused
	}); text != "" {
		d, _ := time.ParseDuration(text)
		f.Unused = f.Now - d.Milliseconds()
	}
	return f
}

// pathKey returns the id of the API key in the path, which may have the external id instead.
func (h *handlers) pathKey(x *exchange.Exchange) (string, error) {
	return x.ResolveID(x.Path.Value("id"), access.KeyID, h.options.Store.KeyID)
}

func (h *handlers) findKey(x *exchange.Exchange) (body keyBody, err error) {
	id, err := h.pathKey(x)
	if err != nil {
		return body, err
	}
	found, err := h.options.Store.Key(x.Request.Context(), x.Organization(), id)
	return newKeyBody(found), err
}

func (h *handlers) revokeKey(x *exchange.Exchange) error {
	return x.Done(h.options.Store.RevokeKey(x.Request.Context(), x.Actor(), x.Organization(), x.Path.Value("id")))
}

// longestGrace is how long a rotated key may stay valid, in seconds: one week, like a signing secret.
const longestGrace = 604_800

func (h *handlers) rotateKey(x *exchange.Exchange) error {
	id, err := h.pathKey(x)
	if err != nil {
		return err
	}
	f := x.OptionalForm()
	grace := f.Integer("grace_seconds", 0, longestGrace)
	if err := f.Err(); err != nil {
		return err
	}
	credential := access.Mint(h.options.KeyPrefix)
	rotated, err := h.options.Store.RotateKey(x.Request.Context(), *x.Principal, x.Actor(), id, credential, time.Duration(form.Or(grace, 0))*time.Second)
	if err != nil {
		return err
	}
	return createdKey(x, rotated.Key, rotated.NotGranted, credential)
}

// leakTime is how long a report takes. A longer one takes a multiple of it. So the time does not tell whether there was something to
// revoke, which a flush of the disk would show.
const leakTime = 250 * time.Millisecond

// reportLeak revokes a leaked API key or access token for whoever holds it. The response is the same whether there is one or not. So
// every report counts as a failure of its address.
func (h *handlers) reportLeak(c *call) error {
	f := c.Form()
	f.Require("key")
	raw := f.Text("key", maxSmallBody) // a scanner finds tokens of others, which may be longer than ours
	if err := f.Err(); err != nil {
		return err
	}
	if err := h.countFailure(c); err != nil {
		return err
	}
	began := time.Now()
	if leaked, ok := access.Opaque(strings.TrimSpace(*raw)); ok { // a text that was copied may end with a new line
		if err := h.options.Store.RevokeLeaked(c.Request.Context(), leaked.Digest(), c.ClientIP(), c.ID); err != nil {
			return err
		}
	}
	select {
	case <-time.After(leakTime - time.Since(began)%leakTime):
	case <-c.Request.Context().Done():
	}
	return c.Done(nil)
}
