package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
)

// clockStore is the part of the store that the clock endpoints use.
type clockStore interface {
	// Clock returns the state of the wall clock.
	Clock() clock.State
	// AcceptClock confirms that the clock is right.
	AcceptClock(ctx context.Context, actor access.Actor) error
}

// Clock are the endpoints of the server's clock.
type Clock struct{ store clockStore }

type clockBody struct {
	Now           exchange.Time  `json:"now"`
	Trusted       bool           `json:"trusted"`
	JumpSeconds   int64          `json:"jump_seconds"` // negative if the clock jumped back
	LastTrustedAt *exchange.Time `json:"last_trusted_at"`
	DoubtedSince  *exchange.Time `json:"doubted_since"`
	TrustedAgain  *exchange.Time `json:"trusted_again_at"`
	Warning       *string        `json:"warning"`
}

// ClockWarning tells an operator what a doubted clock means and what to do. It is empty if the clock is trusted.
func ClockWarning(s clock.State) string {
	if s.Trusted() {
		return ""
	}
	return s.Warning() + " " + "To start deleting at once, run: keyhook clock accept"
}

func newClockBody(s clock.State) clockBody {
	body := clockBody{
		Now: exchange.Time(time.Now().UnixMilli()), Trusted: s.Trusted(), JumpSeconds: int64(s.Jump() / time.Second), Warning: exchange.NullIfEmpty(ClockWarning(s)),
	}
	if d := s.Doubt; d != nil {
		trusted, since, again := exchange.Time(d.Trusted), exchange.Time(d.Since), exchange.Time(s.TrustedAt())
		body.LastTrustedAt, body.DoubtedSince, body.TrustedAgain = &trusted, &since, &again
	}
	return body
}

// Read responds with the state of the clock.
func (h Clock) Read(x *exchange.Exchange) error { return x.OK(newClockBody(h.store.Clock())) }

// Accept confirms the clock and responds with its new state.
func (h Clock) Accept(x *exchange.Exchange) error {
	if err := h.store.AcceptClock(x.Request.Context(), x.Actor()); err != nil {
		return err
	}
	return h.Read(x)
}
