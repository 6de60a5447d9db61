package queue_test

import (
	"context"
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// while starts a long operation, changes something after its first transaction and before its first read, and lets it go on. It must
// run in a bubble.
func (x fixture) while(t *testing.T, operation, change func()) {
	t.Helper()
	end := must[func()](t)(x.TakeReplayTurn(t.Context(), x.Org()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		operation()
	}()
	synctest.Wait()
	change()
	end()
	<-done
}

// inBubble runs a test on a fixture with one attempt for each delivery, in a bubble.
func inBubble(t *testing.T, run func(t *testing.T, x fixture)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.FrailOptions(t, path))
		run(t, fixtureOf(t, store))
	})
}

// TestARecoveryThatFindsNothing does not activate a subscription for a key that was revoked meanwhile.
func TestARecoveryThatFindsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, x fixture) {
		key, raw := storagetest.Key(t, x.Store, x.Owner, access.WebhooksWrite)
		x.EndAll(t, true)
		x.SetActive(t, false)
		by := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), raw.Digest())).Actor("", "")
		x.while(t, func() {
			_, err := x.Queue.Recover(t.Context(), by, x.Org(), x.Sub.ID, webhook.RecoveryRequest{Since: 1, Activate: true})
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
		}, func() {
			if err := x.Directory.RevokeKey(t.Context(), x.Actor(), x.Org(), key.ID); err != nil {
				t.Fatal(err)
			}
		})
		if sub := x.Read(t); !sub.Paused {
			t.Errorf("it is %s", sub.Status)
		}
	})
}

func TestChangesDuringALongOperation(t *testing.T) {
	t.Parallel()

	t.Run("a discard drops nothing that was published after it began", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, x fixture) {
			x.EndAll(t, true)
			x.Publish(t, 2, "old")
			var later, begun string
			x.while(t, func() {
				if n, err := x.Queue.Discard(t.Context(), x.Actor(), x.Org(), x.Sub.ID, 0); err != nil || n != 2 {
					t.Errorf("%d dropped, error %v", n, err)
				}
			}, func() {
				later, begun = x.Publish(t, 1, "later")[0], x.Publish(t, 1, "begun")[0]
				for _, job := range x.Jobs(t) {
					if job.EventID == begun {
						x.Begin(t, job)
					}
				}
			})
			if a, b := x.stateOf(t, later), x.stateOf(t, begun); a != webhook.Pending || b != webhook.Pending {
				t.Errorf("the later events are %v and %v, want pending", a, b)
			}
		})
	})

	again := map[string]func(t *testing.T, x fixture, by access.Actor) (int64, error){
		"by a replay": func(t *testing.T, x fixture, by access.Actor) (int64, error) {
			r, err := x.Queue.Replay(t.Context(), by, x.Org(), x.Sub.ID, everything)
			return r.Total(), err
		},
		"by a recovery": func(t *testing.T, x fixture, by access.Actor) (int64, error) {
			r, err := x.Queue.Recover(t.Context(), by, x.Org(), x.Sub.ID, recovering(1))
			return r.Deliveries, err
		},
		"by a redelivery of a list": func(t *testing.T, x fixture, by access.Actor) (int64, error) {
			r, err := x.Queue.SendListed(t.Context(), by, x.Org(), webhook.BulkRequest{Events: webhook.EventFilter{State: webhook.AnyExhausted, Since: 1}})
			return r.Deliveries, err
		},
	}

	t.Run("nothing is sent again or dropped for a key that was revoked", func(t *testing.T) {
		t.Parallel()
		long := maps.Clone(again)
		long["by a discard"] = func(t *testing.T, x fixture, by access.Actor) (int64, error) {
			x.Publish(t, 1, "order.paid")
			return x.Queue.Discard(t.Context(), by, x.Org(), x.Sub.ID, 0)
		}
		for name, again := range long {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, x fixture) {
					x.EndAll(t, true)
					key, raw := storagetest.Key(t, x.Store, x.Owner, access.WebhooksWrite)
					x.EndAll(t, true) // the audit event about it
					x.Publish(t, 1, "order.paid")
					x.EndAll(t, false)
					by := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), raw.Digest())).Actor("", "")
					x.while(t, func() {
						n, err := again(t, x, by)
						if n != 0 {
							t.Errorf("%d are sent again or dropped", n)
						}
						storagetest.ExpectFault(t, err, fault.Unauthenticated, "key_revoked")
					}, func() {
						if err := x.Directory.RevokeKey(t.Context(), x.Actor(), x.Org(), key.ID); err != nil {
							t.Fatal(err)
						}
					})
				})
			})
		}
	})

	t.Run("audit events are not sent again after they were switched off", func(t *testing.T) {
		t.Parallel()
		for name, again := range again {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, x fixture) {
					x.EndAll(t, true)
					storagetest.Key(t, x.Store, x.Owner, access.EventsRead) // an audit event
					x.Publish(t, 1, "order.paid")
					x.EndAll(t, false)
					x.while(t, func() {
						if n, err := again(t, x, x.Actor()); err != nil || n != 1 {
							t.Errorf("%d are sent again, want 1, error %v", n, err)
						}
					}, func() {
						if err := x.Change(t, x.Actor(), webhook.SubscriptionChange{AuditEvents: new(false)}); err != nil {
							t.Fatal(err)
						}
					})
					if types := x.types(t); len(types) != 1 || types[0] != "order.paid" {
						t.Errorf("pending are %v", types)
					}
				})
			})
		}
	})

	t.Run("a recovery does not activate what a person pauses meanwhile", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, x fixture) {
			x.EndAll(t, true)
			x.Publish(t, 1, "a")
			x.EndAll(t, false)
			x.while(t, func() {
				_, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.RecoveryRequest{})
				storagetest.ExpectFault(t, err, fault.Conflict, "paused")
			}, func() { x.SetActive(t, false) })
			if sub := x.Read(t); !sub.Paused {
				t.Errorf("it is %s", sub.Status)
			}
		})
	})
}

// TestNothingIsSentAgainAfterAnEnd ends the plan's webhooks, the organization or the subscription during a replay and a recovery.
func TestNothingIsSentAgainAfterAnEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, x fixture)
		want   fault.Kind
	}{
		"plan": {func(t *testing.T, x fixture) { x.SetWebhooks(t, false) }, fault.Forbidden},
		"organization": {func(t *testing.T, x fixture) {
			must[access.Closure](t)(x.CloseOrganization(t.Context(), holder(t, x), x.Owner.Organization.ID))
		}, fault.Conflict},
		"subscription": {func(t *testing.T, x fixture) {
			if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
				t.Fatal(err)
			}
		}, fault.NotFound},
	} {
		for act, again := range map[string]func(ctx context.Context, x fixture) error{
			"a replay": func(ctx context.Context, x fixture) error {
				_, err := x.Queue.Replay(ctx, x.Actor(), x.Org(), x.Sub.ID, everything)
				return err
			},
			"a recovery": func(ctx context.Context, x fixture) error {
				_, err := x.Queue.Recover(ctx, x.Actor(), x.Org(), x.Sub.ID, recovering(1))
				return err
			},
			"a recovery of a list": func(ctx context.Context, x fixture) error {
				_, err := x.Queue.SendListed(ctx, x.Actor(), x.Org(), listed(webhook.AnyExhausted, true))
				if err == nil && name == "subscription" {
					err = fault.Missing("subscription") // the others of the list are recovered
				}
				return err
			},
		} {
			t.Run(act+" and the "+name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, x fixture) {
					x.EndAll(t, true)
					x.Publish(t, 1, "a")
					x.EndAll(t, false)
					x.while(t, func() {
						// The events of a closed organization may be gone already, so there is nothing to refuse.
						if err := again(t.Context(), x); fault.KindOf(err) != tt.want && name != "organization" {
							t.Errorf("error %v", err)
						}
					}, func() { tt.change(t, x) })
					for _, job := range x.Jobs(t) {
						if job.Cause == webhook.ByHand {
							t.Errorf("pending is %s", job.EventType)
						}
					}
				})
			})
		}
	}
}

// TestInterruptedRecovery has a recovery of two chunks, of which the second fails.
func TestInterruptedRecovery(t *testing.T) {
	t.Parallel()
	const chunk = 250
	x := newOneAttemptFixture(t)
	x.EndAll(t, true)
	for left := chunk + 10; left > 0; left -= 100 {
		x.Publish(t, min(left, 100), "a")
		x.EndAll(t, false)
	}
	x.Publish(t, 1, "last")
	x.EndAll(t, false)
	if n := must[webhook.Recovery](t)(x.CountRecovery(t.Context(), recovering(1))).Deliveries; n != chunk+11 {
		t.Fatalf("%d have failed", n)
	}
	refusals{x.Store}.alter(t, "UPDATE subscriptions SET status = 'disabled', last_error = 'x', consecutive_failures = 2000, epoch = epoch + 1")
	refusals{x.Store}.refuse(t, sentAgain, "NEW.event_id = (SELECT max(id) FROM events WHERE type = 'last')")
	// Mostly a chunk is recovered before the failure. On a slow machine, chunks are smaller.
	r, err := x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(1))
	before := r.Deliveries
	if err == nil || before < 1 || before > chunk+10 {
		t.Errorf("recovered %+v, error %v", r, err)
	}
	if sub := x.Read(t); sub.Status != webhook.Disabled || sub.PendingDeliveries != before {
		t.Errorf("it is %s with %d pending", sub.Status, sub.PendingDeliveries)
	}
	refusals{x.Store}.allow(t)
	r, err = x.Queue.Recover(t.Context(), x.Actor(), x.Org(), x.Sub.ID, recovering(1))
	if err != nil || r.Deliveries != chunk+11-before || r.Pending != before {
		t.Errorf("recovered %+v, error %v", r, err)
	}
	if sub := x.Read(t); sub.Status != webhook.Healthy {
		t.Errorf("it is %s", sub.Status)
	}
}
