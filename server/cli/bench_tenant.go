package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
)

// tenant is an organization with an owner and a key. Each section has one of its own, so that none meets what another
// left behind.
type tenant struct {
	owner client.Client
	key   string
}

// newTenant makes an organization under a plan.
func newTenant(ctx context.Context, server *childServer, name, plan string) (*tenant, error) {
	operator := client.Client{Base: server.url, Authorization: "Bearer " + server.token}
	var organization, user created
	var token struct {
		Token string `json:"token"`
	}
	var key struct {
		Key string `json:"key"`
	}
	err := operator.Call(ctx, "POST", "/api/v1/organizations/", object{"name": name, "plan": plan}, http.StatusCreated, &organization)
	if err != nil {
		return nil, err
	}
	person := object{"email": name + "@bench.example", "name": name}
	if err := operator.Call(ctx, "POST", "/api/v1/users/", person, http.StatusCreated, &user); err != nil {
		return nil, err
	}
	member := "/api/v1/organizations/" + organization.ID + "/members/" + user.ID + "/"
	if err := operator.Call(ctx, "PUT", member, object{"role": "owner"}, http.StatusOK, nil); err != nil {
		return nil, err
	}
	in := object{"organization_id": organization.ID}
	if err := operator.Call(ctx, "POST", "/api/v1/users/"+user.ID+"/access-tokens/", in, http.StatusCreated, &token); err != nil {
		return nil, err
	}
	owner := client.Client{Base: server.url, Authorization: "Bearer " + token.Token}
	wanted := object{"name": "bench", "scope": "events:write"}
	if err := owner.Call(ctx, "POST", "/api/v1/api-keys/", wanted, http.StatusCreated, &key); err != nil {
		return nil, err
	}
	return &tenant{owner, key.Key}, nil
}

// subscribe has events of a type sent to a URL, and returns the subscription's id.
func (t *tenant) subscribe(ctx context.Context, url, eventType string) (string, error) {
	var sub created
	wanted := object{"url": url, "event_types": []string{eventType}}
	err := t.owner.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/", wanted, http.StatusCreated, &sub)
	return sub.ID, err
}

func (t *tenant) unsubscribe(ctx context.Context, id string) error {
	return t.owner.Call(ctx, "DELETE", "/api/v1/webhooks/subscriptions/"+id+"/", nil, http.StatusNoContent, nil)
}

func (t *tenant) pending(ctx context.Context, id string) (n int, err error) {
	var sub struct {
		Pending int `json:"pending_deliveries"`
	}
	err = t.owner.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/"+id+"/", nil, http.StatusOK, &sub)
	return sub.Pending, err
}

const (
	pollInterval = 5 * time.Millisecond
	stuckAfter   = 30 * time.Second
)

// drained waits until every delivery to the subscriptions is made and recorded. Nothing must be published meanwhile, so
// that what is done for one of them stays done.
func (t *tenant) drained(ctx context.Context, ids ...string) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for _, id := range ids {
		least, since := -1, time.Now()
		for {
			n, err := t.pending(ctx, id)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			if least < 0 || n < least {
				least, since = n, time.Now()
			}
			if time.Since(since) > stuckAfter {
				return fmt.Errorf("%d deliveries stay pending, for %s now; is anything wrong with the loopback interface?", n, stuckAfter)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// ask asks the receiver.
func (b *bench) ask(ctx context.Context, path string, result any) error {
	return client.Client{Base: b.counterpart.Endpoints[0]}.Call(ctx, "GET", path, nil, http.StatusOK, result)
}

// received returns what has come to the receiver in a series since this was last asked, which must be n deliveries.
func (b *bench) received(ctx context.Context, name string, n int) (seriesReport, error) {
	var report seriesReport
	if err := b.ask(ctx, pathReport+name, &report); err != nil {
		return report, err
	}
	if report.Received != n {
		return report, fmt.Errorf("%d deliveries came in where %d were expected", report.Received, n)
	}
	return report, nil
}
