package dispatch

import (
	"testing"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestInboxKeepsRoomForEachOrganization(t *testing.T) {
	t.Parallel()
	b := newInbox()
	body := make([]byte, 100_000)
	for i := range int64(200) { // 20 MB
		b.DeliveriesCreated([]webhook.Job{{Organization: 1, Subscription: i, Event: i, Body: body}})
	}
	if b.newBytes.Used < maxNewBytes/8*6 || b.newBytes.Used > maxNewBytes/8*7 {
		t.Errorf("one organization alone has %d of %d bytes", b.newBytes.Used, maxNewBytes)
	}
	b.DeliveriesCreated([]webhook.Job{{Organization: 2, Subscription: 1000, Event: 1000, Body: body}})
	messages, spilled, _ := b.takeAll(nil)
	if _, late := spilled[1000]; late {
		t.Error("the other's job has to be read from the table")
	}
	if len(spilled) != 200-(len(messages)-1) || spilled[199] != 1 {
		t.Errorf("%d taken over, %d spilled, the last of organization %d", len(messages), len(spilled), spilled[199])
	}
	b.DeliveriesCreated([]webhook.Job{{Organization: 1, Subscription: 1, Event: 2000, Body: body}})
	if _, spilled, _ := b.takeAll(nil); spilled != nil || b.newBytes.Used != 0 || b.newBytes.UsedBy(1) != 0 {
		t.Errorf("what was taken is still counted: %d, %d", b.newBytes.Used, b.newBytes.UsedBy(1))
	}
}
