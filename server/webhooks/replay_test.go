package webhooks_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, reader := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.*", "order.paid")
	f.Attempted(t, owner, sub, 2) // one is delivered, one waits
	known := map[string]string{
		"as": servertest.Bearer(token), "sub": "/api/v1/webhooks/subscriptions/" + sub.ID + "/", "reader": servertest.APIKey(reader), "org": owner.Organization.ID,
	}
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("may find nothing", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0,"reasons":{"exhausted":0,"plan":0,"type_added":0,"filter_changed":0}}`),
	})
	f.Move(t, owner.Organization.ID, "free")
	for _, eventType := range []string{"user.created", "user.deleted", "order.paid", "order.refunded"} {
		storagetest.Publish(t, f.Store, owner, eventType)
	}
	f.Move(t, owner.Organization.ID, "growth")
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("(deactivated)", "PATCH {sub}", `{"is_active":false}`, 200),
		servertest.OK("count without creating deliveries in a dry run", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","dry_run":true}`, 202, `{"deliveries":3,"reasons":{"exhausted":0,"plan":3,"type_added":0,"filter_changed":0}}`),
		servertest.OK("(counted)", "GET {sub}", "", 200, `"pending_deliveries":1`),
		servertest.OK("count what failed", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","only":"failed","dry_run":true}`, 202, `{"deliveries":0,"reasons":{"exhausted":0,"plan":0,"type_added":0,"filter_changed":0}}`),
		servertest.OK("count what was missed", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","only":"missed","dry_run":true}`, 202, `{"deliveries":3,"reasons":{"exhausted":0,"plan":3,"type_added":0,"filter_changed":0}}`),
		servertest.OK("end with the period", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","until":"2020-01-02T00:00:00+01:00","dry_run":true}`, 202, `{"deliveries":0,"reasons":{"exhausted":0,"plan":0,"type_added":0,"filter_changed":0}}`),
		servertest.OK("create deliveries of one type", "POST {sub}replay", `{"since":"2020-01-01T00:00:00Z","event_types":["user.*","order.refunded"],"dry_run":false}`, 202, `{"deliveries":2,"reasons":{"exhausted":0,"plan":2,"type_added":0,"filter_changed":0}}`),
		servertest.OK("create the rest, also while the subscription is disabled", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","until":"2100-01-01T00:00:00Z","event_types":[],"only":"all"}`, 202, `{"deliveries":1,"reasons":{"exhausted":0,"plan":1,"type_added":0,"filter_changed":0}}`),
		servertest.OK("create nothing twice", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z"}`, 202, `{"deliveries":0,"reasons":{"exhausted":0,"plan":0,"type_added":0,"filter_changed":0}}`),
		servertest.OK("leave new deliveries pending while the subscription is disabled", "GET {sub}", "", 200, `"status":"disabled"`, `"pending_deliveries":4`),
		servertest.OK("are in the audit log", "GET /api/v1/audit-events/?type=webhook_subscription_replayed&limit=2", "", 200, `"since":"2020-01-01T00:00:00.000Z"`,
			`"until":"2100-01-01T00:00:00.000Z"`, `"only":"all"`, `"deliveries":1`, `"complete":true`, `"id":"`+sub.ID+`"`, `"name":"acme-owner"`),
		servertest.Bad("need a body", "POST {sub}replay/", "", 400, "body_required"),
		{Name: "need the permission", Call: servertest.NewCall("POST {sub}replay/", "{reader}", `{"since":"2020-01-01T00:00:00Z"}`), Status: 403, Code: "permission_denied", Never: servertest.NoSecret},
	})
	f.Move(t, owner.Organization.ID, "free")
	f.Run(t, known, []servertest.Scenario{
		servertest.Bad("need the plan", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z"}`, 403, "plan_capability_required"),
		servertest.Bad("need the plan for a dry run too", "POST {sub}replay/", `{"since":"2020-01-01T00:00:00Z","dry_run":true}`, 403, "plan_capability_required"),
	})
}

// TestReplayWithoutAuditRead leaves audit events out. Otherwise their number would tell what the audit log has.
func TestReplayWithoutAuditRead(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "other")
	_, narrow := storagetest.Key(t, f.Store, owner, access.WebhooksWrite)
	known := map[string]string{"as": servertest.Bearer(token), "narrow": servertest.APIKey(narrow), "sub": "/api/v1/webhooks/subscriptions/" + sub.ID + "/"}
	const missed = `{"since":"2020-01-01T00:00:00Z","event_types":["api_key_created"],"dry_run":true}`
	f.Run(t, known, []servertest.Scenario{
		servertest.OK("(wants audit events now)", "PATCH {sub}", `{"event_types":["api_key_created"],"audit_events":true}`, 200),
		servertest.OK("an owner", "POST {sub}replay/", missed, 202, `{"deliveries":1,"reasons":{"exhausted":0,"plan":0,"type_added":1,"filter_changed":0}}`),
		{Name: "a key of the scope webhooks:write", Call: servertest.NewCall("POST {sub}replay/", "{narrow}", missed), Status: 202, Want: []string{`{"deliveries":0,`}, Never: servertest.NoSecret},
		{Name: "such a key cannot change the filter", Call: servertest.NewCall("PATCH {sub}", "{narrow}", `{"filter":[{"path":"actor.name","op":"prefix","value":"A"}]}`), Status: 403, Code: "permission_denied", Never: servertest.NoSecret},
	})
}

// shortRetention is a store that keeps events for this time.
type shortRetention struct {
	server.Store
	kept time.Duration
}

func (k shortRetention) EventRetention() time.Duration { return k.kept }

func TestReplayFields(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t, func(o *server.Options) { o.Store = shortRetention{o.Store, 30 * 24 * time.Hour} })
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	at := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339Nano) }
	recent := `"since":"` + at(time.Hour) + `"`
	for name, tt := range map[string]struct{ body, code, problems string }{
		"nothing":                             {`{}`, "validation_failed", "since: missing"},
		"a day":                               {`{"since":"2020-01-31"}`, "validation_failed", "since: invalid"},
		"no time":                             {`{"since":"yesterday"}`, "validation_failed", "since: invalid"},
		"an empty time":                       {`{"since":""}`, "validation_failed", "since: invalid"},
		"a time of 2000 characters":           {`{"since":"` + strings.Repeat("2", 2000) + `"}`, "validation_failed", "since: too_long"},
		"the future":                          {`{"since":"` + at(-time.Hour) + `"}`, "validation_failed", "since: in_the_future"},
		"a time before the oldest kept event": {`{"since":"` + at(30*24*time.Hour+time.Second) + `"}`, "beyond_retention", "since: beyond_retention"},
		"the year one":                        {`{"since":"0001-01-01T00:00:00Z","until":"0001-01-01T00:00:00Z"}`, "validation_failed", "since: beyond_retention until: out_of_range"},
		"a time just after the oldest kept event": {`{"since":"` + at(30*24*time.Hour-time.Minute) + `"}`, "", ""},
		"an end that is not a time":               {`{` + recent + `,"until":"later"}`, "validation_failed", "until: invalid"},
		"an end before the beginning":             {`{` + recent + `,"until":"` + at(2*time.Hour) + `"}`, "validation_failed", "until: out_of_range"},
		"an end at the beginning":                 {`{` + recent + `,"until":` + strings.TrimPrefix(recent, `"since":`) + `}`, "validation_failed", "until: out_of_range"},
		"an end in the future":                    {`{` + recent + `,"until":"` + at(-time.Hour) + `"}`, "", ""},
		"an invalid event type":                   {`{` + recent + `,"event_types":["ok","NOT OK","*"]}`, "validation_failed", "event_types.1: invalid event_types.2: invalid"},
		"an unknown value of only":                {`{` + recent + `,"only":"lost"}`, "validation_failed", "only: invalid"},
		"an empty value of only":                  {`{` + recent + `,"only":""}`, "validation_failed", "only: invalid"},
		"another field":                           {`{` + recent + `,"dryrun":true}`, "validation_failed", "dryrun: unknown_field"},
		"all at once": {`{"since":"x","until":7,"event_types":["A"],"only":"x","dry_run":"yes","colour":"red"}`, "validation_failed",
			"since: invalid until: wrong_type event_types.0: invalid only: invalid dry_run: wrong_type colour: unknown_field"},
	} {
		t.Run("of a replay: "+name, func(t *testing.T) {
			got := f.Do(t, "POST /api/v1/webhooks/subscriptions/"+sub.ID+"/replay/", servertest.Bearer(token), tt.body)
			if tt.problems == "" {
				got.Want(t, 202, "")
				return
			}
			got.Want(t, 422, tt.code)
			if fields := strings.Join(got.Fields(), " "); fields != tt.problems {
				t.Errorf("problems %q, want %q", fields, tt.problems)
			}
		})
	}
}

func TestReplayBeyondRetention(t *testing.T) {
	t.Parallel()
	for kept, earliest := range map[time.Duration]string{30 * 24 * time.Hour: "1999-12-02T00:00:00.000Z", 90 * time.Minute: "1999-12-31T22:30:00.000Z"} {
		t.Run("says how long events are kept: "+kept.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // the clock stands at 2000-01-01T00:00:00Z
				f := servertest.Build(t, func(o *server.Options) { o.Store = shortRetention{o.Store, kept} })
				owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
				sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
				ask := func(since string) servertest.Response {
					return f.Do(t, "POST /api/v1/webhooks/subscriptions/"+sub.ID+"/replay/", servertest.Bearer(token), `{"since":"`+since+`"}`)
				}
				got := ask("1999-01-01T00:00:00Z").Want(t, 422, "beyond_retention")
				if detail := got.Field("detail"); !strings.Contains(detail, "give a time after "+earliest) {
					t.Errorf("detail %q", detail)
				}
				ask(earliest).Want(t, 202, "")
			})
		})
	}
}
