package dispatch

import (
	"fmt"
	"slices"
	"strings"
)

// nextStages are the stages that may follow each stage.
var nextStages = [stageCount][]stage{
	gone:      {queued, begun, releasing}, // begun: in the transaction that created it
	queued:    {beginning, gone},
	beginning: {begun, queued, releasing, gone}, // queued: Begin failed; gone: it refused the attempt
	begun:     {sending, releasing},
	releasing: {gone},
	sending:   {ended, begun, releasing, gone}, // begun: not sent after all; gone: interrupted
	ended:     {settled, gone},                 // gone: interrupted
}

func (g stage) String() string {
	return [stageCount]string{"gone", "queued", "beginning", "begun", "releasing", "sending", "ended", "settled"}[g]
}

func checkMove(a *attempt, to stage) error {
	if !slices.Contains(nextStages[a.stage], to) {
		return fmt.Errorf("delivery %d went from %s to %s", a.Delivery, a.stage, to)
	}
	return nil
}

// tally is what a scheduler, an organization or a lane counts.
type tally struct {
	lanes        int
	stages       stageCounts
	used         [resourceKinds]int
	blocking     int
	failingLanes int
	lateLanes    int

	// Of a lane alone.
	unsettledFailures int
	setAside          int
	weight            int
}

func (t tally) String() string {
	return fmt.Sprintf("%d lanes, attempts%s, begin places %d, probe places %d, send slots %d, read slots %d, bytes %d, %d blocking results, %d lanes that fail to read, %d late lanes",
		t.lanes, t.stages, t.used[beginPlaces], t.used[probePlaces], t.used[sendSlots], t.used[readSlots], t.used[memoryBytes], t.blocking, t.failingLanes, t.lateLanes)
}

func (c stageCounts) String() string {
	var text strings.Builder
	for of, n := range c {
		if n != 0 {
			text.WriteString(fmt.Sprintf(" %s=%d", stage(of), n))
		}
	}
	return text.String()
}

func (t *tally) add(o tally) {
	t.lanes += o.lanes
	for i := range t.stages {
		t.stages[i] += o.stages[i]
	}
	for i := range t.used {
		t.used[i] += o.used[i]
	}
	t.blocking += o.blocking
	t.failingLanes += o.failingLanes
	t.lateLanes += o.lateLanes
}

// checkCounters derives every counter again from the stages of the attempts, and compares.
func (s *scheduler) checkCounters() error {
	all, ofOrg, jobsOfEvent := tally{}, map[*orgLanes]*tally{}, map[int64]int{}
	for row, l := range s.lanes.of {
		if row != l.subscription || s.lanes.orgs[l.org.id] != l.org {
			return fmt.Errorf("lane %d of organization %d is in the wrong map", l.subscription, l.org.id)
		}
		t, err := s.checkLane(l, jobsOfEvent)
		if err != nil {
			return fmt.Errorf("lane %d: %w", l.subscription, err)
		}
		if ofOrg[l.org] == nil {
			ofOrg[l.org] = &tally{}
		}
		ofOrg[l.org].add(t)
		all.add(t)
	}
	for id, org := range s.lanes.orgs {
		counted := tally{lanes: org.lanes}
		for kind := range counted.used {
			counted.used[kind] = org.used(kind)
		}
		if t := ofOrg[org]; t == nil || counted.lanes != t.lanes || counted.used != t.used {
			return fmt.Errorf("organization %d counts\n%s\nbut its lanes have\n%s", id, counted, t)
		}
	}
	if err := s.checkBodies(jobsOfEvent); err != nil {
		return err
	}
	if err := s.checkOpenings(); err != nil {
		return err
	}
	counted := tally{
		lanes: len(s.lanes.of), stages: s.lanes.stages, blocking: s.lanes.blocking, failingLanes: s.lanes.failingReads, lateLanes: s.lanes.late,
	}
	for kind := range s.lanes.resources {
		counted.used[kind] = s.lanes.resources[kind].Used
	}
	counted.used[beginPlaces] -= s.lanes.taken.Used()
	if counted != all {
		return fmt.Errorf("the scheduler counts\n%s\nbut its lanes have\n%s", counted, all)
	}
	return nil
}

// checkLane returns what the lane uses.
func (s *scheduler) checkLane(l *lane, jobsOfEvent map[int64]int) (tally, error) {
	t := tally{lanes: 1}
	for delivery, a := range l.attempts {
		if a.lane != l || a.Delivery != delivery {
			return t, fmt.Errorf("delivery %d is filed as %d of lane %d", a.Delivery, delivery, a.lane.subscription)
		}
		unkept := a.stage != queued && a.Body == nil && a.weight == 0 // there was no room for it, or its body has changed
		if a.stage < ended && a.weight != weight(a.Job) && !unkept || a.stage >= ended && a.weight != 0 {
			return t, fmt.Errorf("delivery %d is %s and weighs %d", delivery, a.stage, a.weight)
		}
		s.addAttempt(&t, a, jobsOfEvent)
	}
	t.used[sendSlots] += l.tests.running
	if l.table.read != nil {
		t.used[readSlots]++
	}
	if l.table.failedReads > 0 {
		t.failingLanes++
	}
	if l.late {
		t.lateLanes++
	}
	switch {
	case t.stages != l.stages:
		return t, fmt.Errorf("it counts the attempts%s, but has%s", l.stages, t.stages)
	case t.stages[gone]+t.stages[settled] > 0:
		return t, fmt.Errorf("it holds attempts that have ended:%s", t.stages)
	case l.recent.unsettledFailures != t.unsettledFailures:
		return t, fmt.Errorf("it counts %d unsettled failures, but has %d", l.recent.unsettledFailures, t.unsettledFailures)
	case l.recent.setAside != t.setAside:
		return t, fmt.Errorf("it counts %d results set aside, but has %d", l.recent.setAside, t.setAside)
	case l.memory.used != t.weight:
		return t, fmt.Errorf("it counts %d bytes, but uses %d", l.memory.used, t.weight)
	}
	if err := checkQueue(l.head, queued, t.stages[queued]); err != nil {
		return t, err
	}
	return t, checkQueue(l.begun, begun, t.stages[begun])
}

// addAttempt adds what an attempt uses in its stage. The first job of each event is charged with the body.
func (s *scheduler) addAttempt(t *tally, a *attempt, jobsOfEvent map[int64]int) {
	t.stages[a.stage]++
	switch a.stage {
	case beginning, begun:
		t.used[beginPlaces] += one(!a.probe)
	case sending:
		t.used[sendSlots]++
	case ended:
		if a.failed {
			t.unsettledFailures++
		}
		if a.blocksSending {
			t.blocking++
		}
		if a.setAside {
			t.setAside++
		}
	}
	if a.probe && a.stage != queued {
		t.used[probePlaces]++
	}
	if a.weight == 0 {
		return
	}
	t.weight += a.weight
	t.used[memoryBytes] += jobWeight
	if jobsOfEvent[a.Event]++; jobsOfEvent[a.Event] == 1 {
		t.used[memoryBytes] += len(a.Body)
	}
}

// checkQueue checks that a queue holds the attempts of one stage, and that their number is right.
func checkQueue(q queue, of stage, want int) error {
	n := 0
	for a := q.first; a != nil; a = a.next {
		if n++; a.stage != of {
			return fmt.Errorf("delivery %d is %s, but in the queue of the attempts that are %s", a.Delivery, a.stage, of)
		}
	}
	if n != want {
		return fmt.Errorf("the queue of the attempts that are %s holds %d of %d", of, n, want)
	}
	return nil
}

func (s *scheduler) checkBodies(jobsOfEvent map[int64]int) error {
	if len(s.lanes.bodies) != len(jobsOfEvent) {
		return fmt.Errorf("%d bodies are in memory, but jobs need %d", len(s.lanes.bodies), len(jobsOfEvent))
	}
	for event, jobs := range jobsOfEvent {
		if s.lanes.bodies[event] == nil || s.lanes.bodies[event].jobs != jobs {
			return fmt.Errorf("the body of event %d is shared by %d jobs, but its count is %+v", event, jobs, s.lanes.bodies[event])
		}
	}
	return nil
}

// checkOpenings checks that the openings know which begin places are in use. The store may have taken more.
func (s *scheduler) checkOpenings() error {
	o := &s.openings
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := 0
	for subscription, lane := range o.lanes {
		l := s.lanes.of[subscription]
		isForgotten := l == nil && lane.taken > 0 && lane.room == (room{})
		if !isForgotten && (l == nil || l.room != lane.room) || lane.taken < 0 {
			return fmt.Errorf("lane %d has the opening %+v", subscription, lane)
		}
		taken += lane.taken
	}
	if inUse := s.lanes.resources[beginPlaces].Used - s.lanes.taken.Used(); o.places.Used < inUse+taken {
		return fmt.Errorf("%d begin places are in use and %d are taken, but %d are counted", inUse, taken, o.places.Used)
	}
	for id, org := range s.lanes.orgs {
		if o.places.UsedBy(id) < org.used(beginPlaces) {
			return fmt.Errorf("organization %d uses %d begin places, but %d are counted", id, org.used(beginPlaces), o.places.UsedBy(id))
		}
	}
	return nil
}
