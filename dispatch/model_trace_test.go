package dispatch_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The model of model_test.go accepts the traces of simulations. A trace is projected to the steps of two events of one subscription,
// and the model must be able to take them, one after the other. It may take any other steps between them that the trace does not show:
// commits of events, attempts that begin, records, recoveries. It may not hold the queue, because the steps would not show more.
//
// So after a change of the queue either the simulations or the model show that the other one is wrong.

// modelStep is a step that a trace shows.
type modelStep struct {
	event  int             // of the two; -1: the process starts
	to     attemptInMemory // sent, succeeded or failed
	cutOff bool            // sent: its record says in the end that a crash interrupted it
}

// refuses returns the index of the first step that the model cannot take, or -1.
func (m *model) refuses(subscription int, steps []modelStep) int {
	m.crashes = 1
	var cutOff [modelEvents]bool // the last request of each event
	possible := map[queueState]bool{{}: true}
	for i, step := range steps {
		after := map[queueState]bool{}
		for queue := slices.Collect(maps.Keys(possible)); len(queue) > 0; queue = queue[1:] {
			for _, next := range m.following(queue[0], subscription, step.event < 0) {
				switch event, from, to := moved(queue[0], next, subscription); {
				case next.held:
				case next.crashes > 0:
					if next.crashes = 0; mayCrash(queue[0], subscription, cutOff) {
						after[next] = true
					}
				case to >= sent:
					if event == step.event && to == step.to {
						after[next] = true
					}
				case from >= sent && cutOff[event]: // its result is not on record
				case !possible[next]:
					possible[next] = true
					queue = append(queue, next)
				}
			}
		}
		if possible = after; len(possible) == 0 {
			return i
		}
		if step.to == sent {
			cutOff[step.event] = step.cutOff
		}
	}
	return -1
}

// fork is a question to the model: which states may follow?
type fork struct {
	s            queueState
	subscription int
	starts       bool
}

// following returns the states that may follow s with steps of one subscription. The other one has all of its events. The traces ask the
// same again and again, so the model remembers its answers.
func (m *model) following(s queueState, subscription int, starts bool) []queueState {
	asked := fork{s, subscription, starts}
	if known, ok := m.known[asked]; ok {
		return known
	}
	m.now, m.from, m.queue = s, map[queueState]queueState{}, nil
	if m.publish(); starts {
		m.crash()
	}
	m.operate()
	for event := range modelEvents {
		m.attempt(subscription, event)
	}
	for i := range m.queue {
		for event := range m.queue[i].committed {
			m.queue[i].deliveries[1-subscription][event] = modelDelivery{disk: delivered}
		}
	}
	if m.known == nil {
		m.known = map[fork][]queueState{}
	}
	m.known[asked] = m.queue
	return m.queue
}

// moved returns the event whose attempt in memory differs between two states, and the attempts.
func moved(s, next queueState, subscription int) (event int, from, to attemptInMemory) {
	for event := range modelEvents {
		from, to = s.deliveries[subscription][event].memory, next.deliveries[subscription][event].memory
		if from != to {
			return event, from, to
		}
	}
	return 0, nothing, nothing
}

// mayCrash reports whether the requests in progress are those whose records say that a crash interrupted them.
func mayCrash(s queueState, subscription int, cutOff [modelEvents]bool) bool {
	for event, d := range s.deliveries[subscription] {
		if d.memory >= sent && !cutOff[event] {
			return false
		}
	}
	return true
}

// shownAttempt is a step of an event to a receiver, as a trace shows it.
type shownAttempt struct {
	modelStep
	id, number string // of the event and the attempt; empty: the process starts
}

// showAttempts returns the steps of a receiver in a trace. Each request has the latest record that began before it and has no other.
func showAttempts(lines []string, host string) (shown []shownAttempt) {
	records := map[string][]string{}
	for _, line := range lines {
		if f := strings.Fields(line); f[1] == "record" && f[2] == host {
			records[f[3]+f[4]] = append(records[f[3]+f[4]], f[7]+f[6])
		}
	}
	for _, line := range lines {
		switch f := strings.Fields(line); {
		case f[1] == "start":
			shown = append(shown, shownAttempt{modelStep: modelStep{event: -1}})
		case f[1] == "request" && f[2] == "https://"+host+"/hook":
			header := func(name string) string {
				_, after, _ := strings.Cut(line, " "+name+"=")
				return strings.Fields(after)[0]
			}
			a := shownAttempt{modelStep{to: sent}, header("X-Service-Event-Id"), header("X-Service-Attempt")}
			clock, _ := time.Parse("15:04:05", f[0])
			at := strconv.FormatInt(synctestStart+clock.Sub(clock.Truncate(24*time.Hour)).Milliseconds(), 10)
			of := records[a.id+a.number]
			for i, r := range slices.Backward(of) {
				if r[:len(at)] <= at {
					a.cutOff = strings.HasSuffix(r, "interrupted")
					records[a.id+a.number] = slices.Delete(of, i, i+1)
					break
				}
			}
			shown = append(shown, a)
		case f[1] == "response" && f[2] == host && !strings.HasSuffix(line, "canceled\n"):
			a := shownAttempt{modelStep{to: failed}, f[3], f[4]}
			if f[5] < "300" && f[5] != "0" {
				a.to = succeeded
			}
			shown = append(shown, a)
		}
	}
	return shown
}

// synctestStart is when the time of a bubble begins.
var synctestStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// checkModel checks that the model can take the steps of each two neighbours of a list of events.
func (r *trace) checkModel(t *testing.T, host string, subscription int, events []string) {
	shown := showAttempts(r.of.Lines(), host)
	m := &model{}
	for i := range len(events) - 1 {
		var steps []modelStep
		for _, a := range shown {
			if event := slices.Index(events[i:i+2], a.id); event >= 0 || a.id == "" {
				a.event = event
				steps = append(steps, a.modelStep)
			}
		}
		if refused := m.refuses(subscription, steps); refused >= 0 {
			t.Fatalf("the model refuses step %d of events %d and %d to %s: %s", refused, i, i+1, host, fmt.Sprintf("%+v", steps))
		}
	}
}

func TestModelRefusesTraces(t *testing.T) {
	t.Parallel()
	starts := modelStep{event: -1}
	request := func(event int) modelStep { return modelStep{event: event, to: sent} }
	cutOff := func(event int) modelStep { return modelStep{event: event, to: sent, cutOff: true} }
	succeeds := func(event int) modelStep { return modelStep{event: event, to: succeeded} }
	fails := func(event int) modelStep { return modelStep{event: event, to: failed} }
	for name, c := range map[string]struct {
		steps              []modelStep
		ordered, unordered int // the step that is refused; -1: none
	}{
		"one after the other":                  {[]modelStep{request(0), succeeds(0), request(1), succeeds(1)}, -1, -1},
		"the second first":                     {[]modelStep{request(1), succeeds(1), request(0)}, 2, -1},
		"both at once":                         {[]modelStep{request(0), request(1)}, 1, -1},
		"the second before a retry":            {[]modelStep{request(0), fails(0), request(1), succeeds(1), request(0)}, 4, -1},
		"the second after the last retry":      {[]modelStep{request(0), fails(0), request(0), fails(0), request(1)}, -1, -1},
		"a recovery after the second":          {[]modelStep{request(0), fails(0), request(0), fails(0), request(1), succeeds(1), request(0)}, -1, -1},
		"again after a success":                {[]modelStep{request(0), succeeds(0), request(0)}, 2, 2},
		"again after a crash, not on record":   {[]modelStep{cutOff(0), succeeds(0), starts, request(0), succeeds(0)}, -1, -1},
		"again after a crash, but on record":   {[]modelStep{request(0), succeeds(0), starts, request(0)}, 3, 3},
		"the second before an interrupted one": {[]modelStep{cutOff(0), starts, request(1), succeeds(1), request(0)}, 4, -1},
		"a crash loses a request on record":    {[]modelStep{request(0), starts}, 1, 1},
		"a third attempt":                      {[]modelStep{request(0), fails(0), request(0), fails(0), request(0), fails(0), request(0), fails(0)}, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for subscription, want := range []int{c.ordered, c.unordered} {
				if got := (&model{}).refuses(subscription, c.steps); got != want {
					t.Errorf("subscription %d: refuses step %d, want %d", subscription, got, want)
				}
			}
		})
	}
}
