package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// lengthy is a store in which a replay takes this time, unless its context ends earlier.
type lengthy struct {
	server.Store
	takes time.Duration
}

func (l lengthy) Replay(ctx context.Context, _ access.Actor, _ int64, _ string, _ webhook.Replay) (webhook.Replayed, error) {
	select {
	case <-time.After(l.takes):
		return webhook.Replayed{Plan: 1}, nil
	case <-ctx.Done():
		return webhook.Replayed{}, fmt.Errorf("replay: %w", ctx.Err())
	}
}

func TestLengthyReplay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		takes  time.Duration
		status int
	}{
		"may take some minutes": {4 * time.Minute, http.StatusAccepted},
		"may not take an hour":  {time.Hour, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, func(o *server.Options) { o.Store = lengthy{o.Store, tt.takes} })
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost,
					"http://keyhook/api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/replay/", strings.NewReader(`{"since":"1999-01-01T00:00:00Z"}`))
				r.Header.Set("Authorization", servertest.Operator)
				r.Header.Set("Content-Type", "application/json")
				began := time.Now()
				response, err := s.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if took := time.Since(began); response.StatusCode != tt.status || took > 5*time.Minute {
					t.Errorf("status %d after %s", response.StatusCode, took)
				}
				s.stop()
				<-s.done
			})
		})
	}
}
