package platform_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
)

// jumped is a store whose clock has jumped, until the clock is accepted.
type jumped struct {
	server.Store
	state *clock.State
}

func (j jumped) Clock() clock.State { return *j.state }

func (j jumped) AcceptClock(_ context.Context, by access.Actor) error {
	if by.Type != "user" {
		return context.Canceled
	}
	j.state.Doubt = nil
	return nil
}

func TestClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	state, _ := clock.State{Seen: at.UnixMilli()}.Observe(0, at.Add(-48*time.Hour).UnixMilli())
	f := servertest.Start(t, func(o *server.Options) { o.Store = jumped{o.Store, &state} })
	f.Run(t, map[string]string{"as": servertest.Operator}, []servertest.Scenario{
		servertest.OK("a clock that has jumped is reported, with what to do", "GET /api/v1/clock/", "", 200, `"now":"20`,
			`"trusted":false,"jump_seconds":-172800,"last_trusted_at":"2030-01-31T12:00:00.000Z","doubted_since":"2030-01-29T12:00:00.000Z","trusted_again_at":"2030-01-30T12:00:00.000Z"`,
			`"warning":"The clock has jumped 48.0 hours back since 2030-01-31T12:00:00Z`, "keyhook clock accept"),
		servertest.OK("it is accepted", "POST /api/v1/clock/accept/", "", 200,
			`"trusted":true,"jump_seconds":0,"last_trusted_at":null,"doubted_since":null,"trusted_again_at":null,"warning":null`),
		servertest.OK("it stays trusted when accepted again", "POST /api/v1/clock/accept/", "", 200, `"trusted":true`),
	})
}
