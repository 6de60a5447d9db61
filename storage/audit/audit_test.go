package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestErasure removes the personal data of ada, and of nobody else.
func TestErasure(t *testing.T) {
	t.Parallel()
	const disabled = access.SubscriptionDisabled
	for name, tt := range map[string]struct {
		eventType, actor, target string
		details, want            string
	}{
		"what is about the user":          {access.UserCreated, "eve", "user ada", `{"name":"Ada","email":"a@b.example","external_id":"7","is_active":true}`, `{"name":"erased","email":"erased","external_id":"erased","is_active":true}`},
		"what names the user":             {access.AccessTokenCreated, "eve", "access_token t", `{"user_id":"ada","name":"Ada's laptop"}`, `{"user_id":"ada","name":"erased"}`},
		"what is empty stays empty":       {access.UserUpdated, "eve", "user ada", `{"name":"","email":null}`, `{"name":"","email":null}`},
		"what is about somebody else":     {access.UserCreated, "ada", "user eve", `{"name":"Eve"}`, `{"name":"Eve"}`},
		"what names somebody else":        {access.MemberSet, "eve", "organization o", `{"user_id":"eve","name":"Eve"}`, `{"user_id":"eve","name":"Eve"}`},
		"a user_id that is no text":       {access.MemberSet, "eve", "organization o", `{"user_id":7,"name":"x"}`, `{"user_id":7,"name":"x"}`},
		"a pause by the user":             {disabled, "ada", "subscription s", `{"last_error":"` + webhook.DeactivatedBy + `Ada"}`, `{"last_error":"` + webhook.DeactivatedBy + access.ErasedUserName + `"}`},
		"a pause by somebody else":        {disabled, "eve", "subscription s", `{"last_error":"` + webhook.DeactivatedBy + `Eve"}`, `{"last_error":"` + webhook.DeactivatedBy + `Eve"}`},
		"an error of a receiver":          {disabled, "ada", "subscription s", `{"last_error":"timeout: Ada"}`, `{"last_error":"timeout: Ada"}`},
		"another type with the same text": {access.SubscriptionUpdated, "ada", "subscription s", `{"last_error":"` + webhook.DeactivatedBy + `Ada"}`, `{"last_error":"` + webhook.DeactivatedBy + `Ada"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, id, _ := strings.Cut(tt.target, " ")
			d := audit.Data{Actor: audit.Actor{Type: "user", ID: &tt.actor, Name: "Somebody"}, Target: audit.Target{Type: kind, ID: id}, Details: json.RawMessage(tt.details)}
			if err := (audit.ErasedUsers{"ada"}).CleanData(&d, tt.eventType); err != nil {
				t.Fatal(err)
			}
			var got, want any
			if json.Unmarshal(d.Details, &got) != nil || json.Unmarshal([]byte(tt.want), &want) != nil {
				t.Fatalf("details %s", d.Details)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if wantName := map[bool]string{true: access.ErasedUserName, false: "Somebody"}[tt.actor == "ada"]; d.Actor.Name != wantName {
				t.Errorf("the actor is %q", d.Actor.Name)
			}
		})
	}
	if _, err := (audit.ErasedUsers{"ada"}).CleanDetails([]byte("no JSON"), "", false, audit.Target{}); err == nil {
		t.Error("details that are no object are no error")
	}
}

func TestTheLogOfAClosedOrganization(t *testing.T) {
	t.Parallel()
	details := map[string]any{"name": "Acme"}
	person := access.Actor{Type: "user", ID: "ada", Name: "Ada", IP: "192.0.2.1"}
	if by, kept := audit.OfClosed(person, access.KeyRevoked, details); by.Name != audit.ErasedText || by.IP != "" || by.ID != "ada" || kept != nil {
		t.Errorf("%+v, %v", by, kept)
	}
	if by, kept := audit.OfClosed(access.System(7), access.KeyRevoked, details); by.Name != "keyhook" || kept != nil {
		t.Errorf("%+v, %v", by, kept)
	}
	if by, kept := audit.OfClosed(person, access.OrganizationClosed, details); by != person || kept == nil {
		t.Errorf("%+v, %v: who closed it is not known", by, kept)
	}
}

// TestWhoReadsAuditEvents tries all that a subscription could be used for to read the audit log without audit:read.
func TestWhoReadsAuditEvents(t *testing.T) {
	t.Parallel()
	all, orders, keys := webhook.Types{}, webhook.Types{"order.*"}, webhook.Types{access.KeyCreated}
	receiver := webhook.Subscription{URL: "https://a.example", AuditEvents: true}
	other := webhook.Subscription{URL: "https://a.example", EventTypes: orders}
	some := filter.Filter{{Path: "actor.name", Op: filter.Exists}}
	for name, tt := range map[string]struct {
		sub     webhook.Subscription
		change  webhook.SubscriptionChange
		refused bool
	}{
		"another URL of a receiver":                     {receiver, webhook.SubscriptionChange{URL: new("https://b.example")}, true},
		"the same URL":                                  {receiver, webhook.SubscriptionChange{URL: new("https://a.example")}, false},
		"another URL, and no audit events any more":     {receiver, webhook.SubscriptionChange{URL: new("https://b.example"), AuditEvents: new(false)}, false},
		"other types of a receiver":                     {receiver, webhook.SubscriptionChange{EventTypes: &orders}, true},
		"another filter of a receiver":                  {receiver, webhook.SubscriptionChange{Filter: &some}, true},
		"the same filter":                               {receiver, webhook.SubscriptionChange{Filter: &filter.Filter{}}, false},
		"another filter of one without audit events":    {other, webhook.SubscriptionChange{Filter: &some}, false},
		"a pause of a receiver":                         {receiver, webhook.SubscriptionChange{IsActive: new(false)}, false},
		"another URL of one without audit events":       {other, webhook.SubscriptionChange{URL: new("https://b.example")}, false},
		"all types for one without audit events":        {other, webhook.SubscriptionChange{EventTypes: &all}, false},
		"a type of audit events":                        {other, webhook.SubscriptionChange{EventTypes: &keys}, true},
		"audit events turned on":                        {other, webhook.SubscriptionChange{AuditEvents: new(true)}, true},
		"all types for one whose types are no audit's":  {webhook.Subscription{EventTypes: orders, AuditEvents: true}, webhook.SubscriptionChange{EventTypes: &all}, true},
		"another URL of one whose types are no audit's": {webhook.Subscription{EventTypes: orders, AuditEvents: true}, webhook.SubscriptionChange{URL: new("https://b.example")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := audit.UpdateRefusal(tt.sub, tt.change); (fault.KindOf(err) == fault.Forbidden) != tt.refused {
				t.Errorf("error %v", err)
			}
		})
	}
	for name, tt := range map[string]struct {
		canRead bool
		change  webhook.SubscriptionChange
		refused bool
		gets    bool
	}{
		"all types, by a reader":      {true, webhook.SubscriptionChange{EventTypes: &all}, false, true},
		"all types, by somebody else": {false, webhook.SubscriptionChange{EventTypes: &all}, false, false},
		"an audit type, by a reader":  {true, webhook.SubscriptionChange{EventTypes: &keys}, false, true},
		"an audit type, by others":    {false, webhook.SubscriptionChange{EventTypes: &keys}, true, false},
		"asked for, by somebody else": {false, webhook.SubscriptionChange{EventTypes: &all, AuditEvents: new(true)}, true, false},
		"turned off, by a reader":     {true, webhook.SubscriptionChange{EventTypes: &all, AuditEvents: new(false)}, false, false},
	} {
		t.Run("a new subscription with "+name, func(t *testing.T) {
			t.Parallel()
			err := audit.CheckCreate(tt.canRead, &tt.change)
			if (fault.KindOf(err) == fault.Forbidden) != tt.refused || !tt.refused && *tt.change.AuditEvents != tt.gets {
				t.Errorf("error %v, audit_events %v", err, tt.change.AuditEvents)
			}
		})
	}
	if err := audit.CheckRedelivery(false, receiver); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("without audit:read: %v", err)
	}
	if err := audit.CheckRedelivery(true, other); fault.KindOf(err) != fault.Conflict {
		t.Errorf("to one that receives none: %v", err)
	}
	if err := audit.CheckRedelivery(true, receiver); err != nil {
		t.Error(err)
	}
}
