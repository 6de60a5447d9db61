package server

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
)

// leakStore is the part of the store that the endpoint for leaked credentials uses.
type leakStore interface {
	// RevokeLeaked revokes the API key or the access token with a digest. It does nothing if there is none.
	RevokeLeaked(ctx context.Context, digest access.Digest, ip, requestID string) error
}

// leaks is the endpoint where whoever holds a key or an access token revokes it.
type leaks struct {
	store leakStore
	auth  *authenticator
}

// leakTime is how long a report takes. A longer one takes a multiple of it. So the time does not tell whether there was something to
// revoke, which a flush of the disk would show.
const leakTime = 250 * time.Millisecond

// report revokes a leaked credential. The response is the same whether there is one or not. So every report counts as a failure of its address.
func (h leaks) report(c *call) error {
	f := c.Form()
	f.Require("key")
	raw := f.Text("key", maxSmallBody) // a scanner finds tokens of others, which may be longer than ours
	if err := f.Err(); err != nil {
		return err
	}
	c.run.Address = c.Client
	if err := h.auth.mayFail(c); err != nil {
		return err
	}
	h.auth.checker.Failed(c.Client)
	began := time.Now()
	if leaked, ok := access.Opaque(*raw); ok {
		if err := h.store.RevokeLeaked(c.Request.Context(), leaked.Digest(), c.ClientIP(), c.ID); err != nil {
			return err
		}
	}
	rest := time.NewTimer(leakTime - time.Since(began)%leakTime)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-c.Request.Context().Done():
	}
	return c.NoContent()
}
