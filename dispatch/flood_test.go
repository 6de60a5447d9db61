package dispatch_test

import (
	"flag"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// For a long run: go test ./dispatch -run Flood -flood 8h -timeout 60m -v
var flood = flag.Duration("flood", 2*time.Minute, "how long the organizations of TestFlood flood the server, in virtual time")

// TestFlood lets three organizations publish without a pause, to receivers that hang, are slow, refuse, limit and take everything. The
// deliveries of a fourth organization are as quick as alone all the time, each of its events arrives once, and the others get theirs.
func TestFlood(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		x := newFixture(t, dispatch.Options{})
		var arrived, taken atomic.Int64
		counted := func(n *atomic.Int64) handler {
			return func(q *http.Request) (*http.Response, error) {
				n.Add(1)
				return respond(204)(q)
			}
		}
		x.subscribeMany(t, 3, "victim.example", counted(&arrived))
		floods := map[string]handler{
			"hangs": hang, "slow": respondSlowly, "refuses": respond(500), "limits": respond(429, "Retry-After", "20"), "takes": counted(&taken),
		}
		var others []*fixture
		for i := range 3 {
			other := x.otherOrganization(t, "flood"+strconv.Itoa(i))
			others = append(others, other)
			for name, answer := range floods {
				host := name + strconv.Itoa(i) + ".example"
				other.setReceiver(host, answer)
				storagetest.Subscription(t, x.Store, other.owner, "https://"+host+"/", "order.paid")
			}
		}
		var late []time.Duration
		events := int64(0)
		for end := time.Now().Add(*flood); time.Now().Before(end); events++ {
			for _, other := range others {
				other.publish(t, 2)
			}
			before, at := arrived.Load(), time.Now()
			x.publish(t, 1)
			for arrived.Load() < before+3 && time.Since(at) < time.Minute {
				time.Sleep(time.Millisecond)
			}
			late = append(late, time.Since(at))
			time.Sleep(time.Until(at.Add(time.Second)))
		}
		slices.Sort(late)
		if n := arrived.Load(); n != 3*events {
			t.Errorf("%d deliveries arrived, want %d", n, 3*events)
		}
		if worst := late[len(late)-1]; worst > time.Second {
			t.Errorf("the slowest event took %s", worst)
		}
		if n := taken.Load(); n < 6*events*9/10 {
			t.Errorf("the receivers that take everything got %d of %d events", n, 6*events)
		}
		t.Logf("%s: %d events of one beside %d of three others; p50 %s, p99 %s, the slowest %s",
			*flood, events, 6*events, late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
	})
}
