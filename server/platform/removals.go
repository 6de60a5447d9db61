package platform

import (
	"context"
	"net/http"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

type erasureBody struct {
	ID           string         `json:"id"`
	ErasedAt     *exchange.Time `json:"erased_at"`
	Complete     bool           `json:"complete"`
	APIKeys      int64          `json:"api_keys"`
	AccessTokens int64          `json:"access_tokens"`
	Memberships  int64          `json:"memberships"`
}

// EraseUser removes what identifies a person, or counts it in a dry run.
func (h *Endpoints) EraseUser(x *exchange.Exchange) error {
	return remove(x, h.Store.EraseUser, h.Store.CountErasure, func(e access.Erasure) (any, bool) {
		return erasureBody{e.ID, (*exchange.Time)(e.ErasedAt), e.Complete, e.APIKeys, e.AccessTokens, e.Memberships}, e.Complete
	})
}

type closureBody struct {
	ID                string         `json:"id"`
	ClosedAt          *exchange.Time `json:"closed_at"`
	Complete          bool           `json:"complete"`
	APIKeys           int64          `json:"api_keys"`
	AccessTokens      int64          `json:"access_tokens"`
	Members           int64          `json:"members"`
	Subscriptions     int64          `json:"subscriptions"`
	PendingDeliveries int64          `json:"pending_deliveries"`
}

// CloseOrganization ends the work of an organization, or counts it in a dry run.
func (h *Endpoints) CloseOrganization(x *exchange.Exchange) error {
	return remove(x, h.Store.CloseOrganization, h.Store.CountClosure, func(c access.Closure) (any, bool) {
		return closureBody{
			c.ID, (*exchange.Time)(c.ClosedAt), c.Complete, c.APIKeys, c.AccessTokens, c.Members, c.Subscriptions, c.PendingDeliveries,
		}, c.Complete
	})
}

// remove ends what the path names, or counts that if the body, which may be empty, asks for a dry run. The status is 202 while the data
// is being removed.
func remove[T any](x *exchange.Exchange, do, count func(context.Context, access.Actor, string) (T, error), body func(T) (v any, complete bool)) error {
	f := x.OptionalForm()
	dry := form.Or(f.Bool("dry_run"), false)
	if err := f.Err(); err != nil {
		return err
	}
	if dry {
		do = count
	}
	found, err := do(x.Request.Context(), x.Actor(), x.Path.Value("id"))
	if err != nil {
		return err
	}
	shown, complete := body(found)
	if dry || complete {
		return x.OK(shown)
	}
	return x.Respond(http.StatusAccepted, shown)
}
