package dispatch

import (
	"net/http"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// currentLane returns a lane whose healthy subscription was read.
func currentLane(s *scheduler, subscription, organization int64) *lane {
	l := s.lanes.laneOf(subscription, organization)
	l.target = &sender.Target{Target: webhook.Target{Subscription: subscription, Organization: organization, Gate: webhook.Gate{Webhooks: true}}}
	l.version = l.wantVersion
	s.setHealth(l, webhook.Health{Status: webhook.Healthy, Epoch: 1})
	return l
}

func TestPlacesOfNewDeliveries(t *testing.T) {
	t.Parallel()

	t.Run("places that are given back can be taken again, as often as anybody wants", func(t *testing.T) {
		t.Parallel()
		const organization, subscription, limit = 1, 1, 16
		o := newOpenings(1024)
		o.open.Store(true)
		o.set(subscription, room{limit: limit})
		for round := range 100 {
			taken := 0
			for o.TakePlace(organization, subscription) {
				taken++
			}
			if taken != limit || o.taken(0) == 0 {
				t.Fatalf("%d places in round %d, want %d", taken, round, limit)
			}
			for range taken {
				o.ReturnPlace(organization, subscription)
			}
			if o.taken(0) > 0 || o.places.UsedBy(organization) != 0 {
				t.Fatal("a place is taken after all were given back")
			}
		}
	})

	for name, wait := range map[string]func(s *scheduler, l *lane){
		"waits in its head":  func(s *scheduler, l *lane) { s.lanes.enqueue(l, webhook.Job{Delivery: 1, Subscription: 1, Event: 1}) },
		"waits in the table": func(_ *scheduler, l *lane) { l.table.hasMore = true },
	} {
		t.Run("a new delivery does not begin while an older one of its lane "+name, func(t *testing.T) {
			t.Parallel()
			s := newTestScheduler(t)
			s.updateOpenings()
			l := currentLane(s, 1, 1)
			s.openLane(l)
			if !s.TakePlace(1, 1) {
				t.Fatal("the test is wrong: the lane has no place")
			}
			wait(s, l)
			s.openLane(l)
			if s.TakePlace(1, 1) {
				t.Error("it begins")
			}
		})
	}
}

// TestADroppedLaneGetsNoWork drops the lane of a closed subscription while it waits for a read. Then all subscriptions change. A job
// that the lane got now would be in no lane that the scheduler knows.
func TestADroppedLaneGetsNoWork(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	l := currentLane(s, 1, 1)
	l.sends = false
	s.lanes.wait(l, readSlots)
	s.update(l)
	if s.lanes.of[1] != nil {
		t.Fatal("the test is wrong: the lane is not dropped")
	}
	s.noteChanges(nil)
	s.update(s.lanes.resources[readSlots].Next(1))
	if s.needsRead(l) || s.lanes.resources[readSlots].Next(1) != nil {
		t.Error("the dropped lane is read")
	}
}

// TestLargeDeliveriesThatHaveBegun lets large deliveries arrive whose attempts have begun. Those without room are released.
func TestLargeDeliveriesThatHaveBegun(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	for delivery := range int64(60) {
		l := currentLane(s, delivery%4, delivery%2)
		s.enterBegun(l, webhook.Job{
			Delivery: delivery + 1, Subscription: l.subscription, Event: delivery + 1, Body: make([]byte, webhook.MaxEvent), Begun: true, Epoch: 1,
		})
	}
	if used := s.lanes.resources[memoryBytes].Used; used > maxMemory || s.lanes.stages[releasing] == 0 || s.lanes.stages[begun] == 0 {
		t.Errorf("%d bytes in memory of at most %d; the attempts are%s", used, maxMemory, s.lanes.stages)
	}
}

// TestARequestEndsBeforeItsResultIsSaved lets nobody take a result, and expects that the scheduler knows the end of the request.
// Otherwise it could learn that an attempt is settled while the attempt still has a slot.
func TestARequestEndsBeforeItsResultIsSaved(t *testing.T) {
	t.Parallel()
	d := New(nil, Options{Transport: answering{}})
	w := newWorker(t.Context(), d)
	target := d.sender.Prepare(webhook.Target{URL: "https://a.example/", Secret: webhook.KnownSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")})
	w.ended = make(chan *sendOrder) // nobody takes the result yet
	w.send(&sendOrder{Attempt: sender.Attempt{Job: webhook.Job{Delivery: 1, Subscription: 1}, Target: target}})
	select {
	case <-d.inbox.wake:
	case <-time.After(10 * time.Second):
		t.Error("the scheduler does not know the end of the request")
	}
	<-w.ended
	w.running.Wait()
}

// answering is a transport that answers at once.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// TestNewDeliveriesLeavePlaces publishes many events at once to lanes that hang together, and one to another lane.
func TestNewDeliveriesLeavePlaces(t *testing.T) {
	t.Parallel()
	const organization, lanes, another = 1, 120, 1000
	o := newOpenings(1024)
	o.open.Store(true)
	for lane := range int64(lanes) {
		o.set(lane, room{limit: 16})
	}
	o.set(another, room{limit: 16})
	for range 16 {
		for lane := range int64(lanes) {
			o.TakePlace(organization, lane)
		}
	}
	if o.places.Used < 512 || !o.TakePlace(organization, another) {
		t.Errorf("%d places were taken, and the other lane gets none", o.places.Used)
	}
}

// TestPlaceOfDroppedLane shows that a lane that is dropped and made again opens no second place while a delivery has the first.
func TestPlaceOfDroppedLane(t *testing.T) {
	t.Parallel()
	o := newOpenings(8)
	o.open.Store(true)
	o.set(7, room{limit: 1})
	if !o.TakePlace(1, 7) {
		t.Fatal("no place")
	}
	o.set(7, room{})
	o.set(7, room{limit: 1})
	if o.TakePlace(1, 7) {
		t.Error("a second place")
	}
	o.ReturnPlace(1, 7)
	if !o.TakePlace(1, 7) {
		t.Error("no place after the first was given back")
	}
	o.set(7, room{})
	o.ReturnPlace(1, 7)
	if len(o.lanes) > 0 || o.places.Used > 0 {
		t.Errorf("%d lanes and %d places stay", len(o.lanes), o.places.Used)
	}
}

// TestDeletedSubscriptionsAreForgotten drops the lanes of a paused and of a deleted subscription. Only the first may get deliveries.
func TestDeletedSubscriptionsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newTestScheduler(t)
	for subscription, deleted := range map[int64]bool{1: false, 2: true} {
		l := currentLane(s, subscription, 1)
		l.sends, l.gate.Deleted = false, deleted
		s.update(l)
	}
	if _, knows := s.parked[1]; !knows || len(s.parked) != 1 || len(s.lanes.of) != 0 {
		t.Errorf("it remembers %v, and has %d lanes", s.parked, len(s.lanes.of))
	}
}
