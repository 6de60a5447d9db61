package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/dispatch/fair"
	"github.com/keyhook/keyhook/storage/webhook"
)

// openings say for which subscriptions the first attempt of a new delivery may begin in the transaction that creates the
// delivery. Such an attempt costs no second transaction, and is sent one commit earlier. The scheduler opens places for
// lanes in which nothing waits, and the store's writer takes them.
//
// A place is taken until the scheduler has the job. From then on the attempt itself counts.
type openings struct {
	open   atomic.Bool // false: nothing may begin
	mu     sync.Mutex
	lanes  map[int64]opening // those with room, or with places that are taken
	places fair.Ledger       // the begin places that attempts use, or that are taken
}

// opening is the room of a lane, and how many places new deliveries have taken in it.
type opening struct {
	room
	taken int
}

// room is how many places a lane has, and how many attempts it has begun and not sent. The zero value is a closed lane.
type room struct{ limit, begun int }

func newOpenings(places int) openings {
	return openings{lanes: map[int64]opening{}, places: fair.NewLedger(places)}
}

// TakePlace reports whether the first attempt of a new delivery may begin in the transaction that creates it. It may if the
// subscription has a place and its organization has not used up its share. As in mayBegin, the fewer places the organization has
// left, the fewer a lane gets. It never waits. It is part of webhook.Watcher.
func (o *openings) TakePlace(organization, subscription int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	lane := o.lanes[subscription]
	if !o.open.Load() || lane.taken >= lane.limit || !o.places.Allows(organization, 1) {
		return false
	}
	if begun := lane.begun + lane.taken; begun > 0 && 2*begun >= o.places.Left(organization) {
		return false
	}
	lane.taken++
	o.lanes[subscription] = lane
	o.places.Charge(organization, 1)
	return true
}

// ReturnPlace undoes TakePlace. It is part of webhook.Watcher.
func (o *openings) ReturnPlace(organization, subscription int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lane := o.lanes[subscription]; lane.taken > 0 {
		lane.taken--
		o.keep(subscription, lane)
	}
	o.places.Charge(organization, -1)
}

// set sets the room of a lane; none if the lane is dropped. Places that new deliveries have taken stay taken. Otherwise the next
// lane of an ordered subscription could open a second place, while the first delivery is in progress.
func (o *openings) set(subscription int64, r room) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep(subscription, opening{r, o.lanes[subscription].taken})
}

func (o *openings) keep(subscription int64, lane opening) {
	if lane == (opening{}) {
		delete(o.lanes, subscription)
	} else {
		o.lanes[subscription] = lane
	}
}

// count adds n attempts that use begin places.
func (o *openings) count(organization int64, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places.Charge(organization, n)
}

// taken returns how many places are taken whose jobs have not arrived.
func (o *openings) taken(inUse int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.places.Used - inUse
}

// openLane opens as many places as the lane may begin attempts at once. It opens none if older deliveries wait in the lane,
// or if the lane has a rate limit.
func (s *scheduler) openLane(l *lane) {
	var r room
	if l.isCurrent() && l.sends && l.gate.Status == webhook.Healthy && l.bucket == nil &&
		l.stages[queued] == 0 && !l.table.hasMore {
		begun := l.stages[beginning] + l.stages[begun]
		limit := s.beginLimit(l) - begun
		if l.isOrdered() {
			limit = one(len(l.attempts) == 0 && l.requests() == 0 && l.table.read == nil && l.table.blocked == 0) // nothing is before it
		}
		if limit > 0 {
			r = room{limit, begun}
		}
	}
	if r != l.room {
		l.room = r
		s.openings.set(l.subscription, r)
	}
}

// updateOpenings closes all lanes while nothing may begin.
func (s *scheduler) updateOpenings() {
	s.openings.open.Store(!s.stopping && !s.begin.failed && s.lanes.blocking == 0)
}
