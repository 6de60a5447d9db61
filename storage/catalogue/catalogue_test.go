package catalogue_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestPutEventType(t *testing.T) {
	t.Parallel()
	x := storagetest.NewPlatform(t)
	put := func(t *testing.T, eventType string, c webhook.EventTypeChange, created bool) webhook.EventType {
		t.Helper()
		p := storagetest.Must[access.Put[webhook.EventType]](t)(x.Catalogue.PutEventType(t.Context(), x.By, eventType, c))
		if p.Created != created {
			t.Errorf("created: %v", p.Created)
		}
		return p.Is
	}
	events := func(t *testing.T) (types []string) {
		t.Helper()
		log := storagetest.Must[access.Page[access.AuditEvent]](t)(x.History.AuditPage(t.Context(), x.Operator.Home.RowID, access.AuditFilter{Limit: 100, Targets: []string{"order.paid"}}))
		for _, e := range log.Rows {
			types = append(types, e.Type+" "+e.TargetType+" "+e.Details)
		}
		return types
	}
	_, err := x.Catalogue.PutEventType(t.Context(), x.By, "order.paid", webhook.EventTypeChange{Group: new("Orders")})
	storagetest.ExpectFault(t, err, fault.Invalid, "validation_failed", "description missing")

	example := []byte(`{"number":1001}`)
	all := webhook.EventTypeChange{Description: new("An order was paid"), Group: new("Orders"), Example: &example, Schema: new([]byte(`{}`))}
	want := webhook.EventType{Type: "order.paid", Description: "An order was paid", Group: "Orders", Example: example, Schema: []byte(`{}`)}
	for _, created := range []bool{true, false} { // the second time, nothing changes
		if d := cmp.Diff(want, put(t, "order.paid", all, created)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	want.Group, want.Schema = "", nil
	put(t, "order.paid", webhook.EventTypeChange{Group: new(""), Schema: new([]byte(nil))}, false)
	if d := cmp.Diff(want, storagetest.Must[webhook.EventType](t)(x.Catalogue.CataloguedType(t.Context(), "order.paid"))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	other := put(t, "order.sent", webhook.EventTypeChange{Description: new("An order was sent")}, true)
	if err := x.Catalogue.DeleteEventType(t.Context(), x.By, "order.paid"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(other, storagetest.Must[webhook.EventType](t)(x.Catalogue.CataloguedType(t.Context(), "order.sent"))); d != "" {
		t.Errorf("another type, after the deletion (-want +got):\n%s", d)
	}
	_, err = x.Catalogue.CataloguedType(t.Context(), "order.paid")
	storagetest.ExpectFault(t, err, fault.NotFound, "not_found")
	storagetest.ExpectFault(t, x.Catalogue.DeleteEventType(t.Context(), x.By, "order.paid"), fault.NotFound, "not_found")
	if d := cmp.Diff([]string{
		"event_type_deleted event_type {}", `event_type_updated event_type {"description":"An order was paid","example_bytes":15,"group":"","schema_bytes":0}`,
		`event_type_created event_type {"description":"An order was paid","example_bytes":15,"group":"Orders","schema_bytes":2}`,
	}, events(t)); d != "" {
		t.Errorf("audit events (-want +got):\n%s", d)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("1,000 types are the most", func(t *testing.T) {
		t.Parallel()
		x := storagetest.NewPlatform(t)
		storagetest.Exec(t, x.Store, `
			WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 999)
			INSERT INTO event_types (type, description, event_group, created_at, updated_at) SELECT 't' || n, 'x', '', 0, 0 FROM n`)
		for i, eventType := range []string{"last", "last", "one.more"} {
			_, err := x.Catalogue.PutEventType(t.Context(), x.By, eventType, webhook.EventTypeChange{Description: new(fmt.Sprint(i))})
			if i < 2 {
				storagetest.Must[any](t)(nil, err)
			} else {
				storagetest.ExpectFault(t, err, fault.Invalid, "catalogue_full")
			}
		}
	})
	t.Run("4 MiB of texts are the most", func(t *testing.T) {
		t.Parallel()
		x := storagetest.NewPlatform(t)
		large := append(append([]byte(`{"ü":"`), bytes.Repeat([]byte("x"), webhook.MaxExample-9)...), `"}`...)
		if len(large) != webhook.MaxExample {
			t.Fatal(len(large))
		}
		put := func(eventType string, example []byte) error {
			_, err := x.Catalogue.PutEventType(t.Context(), x.By, eventType, webhook.EventTypeChange{Description: new("d"), Example: &example})
			return err
		}
		for i := range 63 {
			storagetest.Must[any](t)(nil, put(fmt.Sprintf("t%02d", i), large))
		}
		rest := webhook.MaxCatalogueSize - 63*(len("t00")+len("d")+len(large)) - len("t63") - len("d")
		fits := append(bytes.Clone(large[:rest-2]), `"}`...)
		storagetest.ExpectFault(t, put("t63", append(bytes.Clone(large[:rest-1]), `"}`...)), fault.Invalid, "catalogue_full")
		storagetest.Must[any](t)(nil, put("t63", fits))
		storagetest.ExpectFault(t, put("t64", nil), fault.Invalid, "catalogue_full")
		storagetest.Must[any](t)(nil, put("t63", nil)) // in place of the other example
		for _, c := range []webhook.EventTypeChange{
			{Schema: new(large[:rest+1])}, {Group: new(string(large[:rest+1]))}, {Description: new(string(large[:rest+2]))},
		} {
			_, err := x.Catalogue.PutEventType(t.Context(), x.By, "t63", c)
			storagetest.ExpectFault(t, err, fault.Invalid, "catalogue_full")
		}
	})
}
