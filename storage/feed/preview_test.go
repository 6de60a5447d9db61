package feed_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestPreviewFilter is in virtual time, because a preview reads for a short time only.
func TestPreviewFilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newFixture(t)
		var ids []string
		for i := range 205 { // the first ones are too old
			ids = append([]string{x.amount(t, i%205, "").ID}, ids...)
		}
		_, err := x.Queue.PublishEvents(t.Context(), x.Org(), []webhook.NewEvent{{Type: "other", Data: []byte(`{"amount":999}`)}})
		if err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			types webhook.Types
			least int
			want  webhook.Preview
		}{
			"the newest":  {webhook.Types{"order.*"}, 0, webhook.Preview{Examined: 199, Matched: 199, Sample: ids[:10]}},
			"few":         {webhook.Types{"order.paid"}, 202, webhook.Preview{Examined: 199, Matched: 3, Sample: ids[:3]}},
			"another":     {webhook.Types{"another"}, 0, webhook.Preview{}},
			"nothing yet": {webhook.Types{"order.*"}, 1000, webhook.Preview{Examined: 199}},
		} {
			got := storagetest.Must[webhook.Preview](t)(x.Feeds.PreviewFilter(t.Context(), x.Org(), tt.types, atLeast(t, tt.least), true))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
		all := storagetest.Must[webhook.Preview](t)(x.Feeds.PreviewFilter(t.Context(), x.Org(), nil, nil, true))
		withAudit := storagetest.Must[webhook.Preview](t)(x.Feeds.PreviewFilter(t.Context(), x.Org(), webhook.Types{access.SubscriptionCreated}, nil, false))
		if all.Examined != 200 || withAudit.Examined != 0 {
			t.Errorf("%+v, %+v", all, withAudit)
		}
		x.setFilter(t, atLeast(t, 1))
		if p := storagetest.Must[webhook.Preview](t)(x.Feeds.PreviewFilter(t.Context(), x.Org(), webhook.Types{access.SubscriptionUpdated}, nil, false)); p.Examined != 1 {
			t.Errorf("an audit event: %+v", p)
		}
	})
}
