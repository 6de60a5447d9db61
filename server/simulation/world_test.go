package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/faultdisk"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/storagetest/seeds"
)

// world is a whole server (the handlers, the dispatcher, and the store on a disk that can fail), with customers, operators and
// receivers around it, and what they know: the model.
type world struct {
	t      *testing.T
	trace  *seeds.Trace
	random *rand.Rand
	jitter func() float64
	dir    string // of the database; a loss of power goes on in another
	server *servertest.Fixture
	stop   func() // the server
	power  int    // how often the power has failed

	mu        sync.Mutex // protects what follows, which receivers change
	customers []*customer
	hosts     map[string]*subscription
	events    map[string]*event // by id
	early     []arrival         // of events whose publication has not returned yet
	place     int               // of the last event
	held      bool
	dead      bool // the power has failed: nothing arrives any more
	full      bool // the disk is full
	arrived   int
}

// arrival is a request to a receiver.
type arrival struct {
	by *subscription
	id string
}

// customer is an organization.
type customer struct {
	id, name string
	plan     string
	closed   bool
	keys     []*key
	events   []*event
	subs     []*subscription
}

// key is an API key and what is known about it.
type key struct {
	id, secret string
	scope      string
	revoked    bool
}

// event is an accepted event. Its amount is what filters look at.
type event struct {
	id, kind string
	amount   int
	place    int // in the order of publication
}

// subscription is a subscription and its receiver.
type subscription struct {
	id, host string
	of       *customer
	secrets  []string // the present one and the one before
	kinds    []string // patterns
	least    int      // its filter: amount gte least; 0 is none
	ordered  bool
	active   bool
	deleted  bool
	repeated bool // recovered, replayed, redelivered or discarded, so that the order says nothing any more
	mood     string
	turn     int

	must map[string]bool // events that it must get, by id
	may  map[string]bool // events that it may get: what a change, a repair or a loss of the answer leaves open
	sent map[string]int  // requests by "event attempt"
	took []string        // the events that it took, in the order of the first successes
}

// wants reports whether the subscription gets a new event.
func (s *subscription) wants(e *event) bool {
	if s.deleted || e.amount < s.least {
		return false
	}
	return len(s.kinds) == 0 || slices.ContainsFunc(s.kinds, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return e.kind == pattern || isPrefix && strings.HasPrefix(e.kind, prefix)
	})
}

// open starts the server on the present directory.
func (w *world) open() {
	o := storagetest.Options(w.t, filepath.Join(w.dir, "keyhook.db"))
	o.Synchronous, o.EncryptionKey, o.KeepEvents = storage.Full, strings.Repeat("ab", 32), 30*24*time.Hour
	store, closeStore := storagetest.OpenWith(w.t, o)
	log := slog.New(slog.DiscardHandler)
	d := dispatch.New(store, dispatch.Options{
		Concurrency: 24, PerSubscription: 4, Grace: 5 * time.Second, Transport: w, Logger: log, Random: w.jitter,
	})
	store.Queue.Watch(d)
	w.server = servertest.BuildOn(w.t, store, func(o *server.Options) {
		o.Tester, o.SentHeaders, o.Deliveries = d, d.SentHeaders, d.Ready
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.stop = func() {
		cancel()
		running.Wait()
		closeStore()
	}
}

// losePower stops everything at once. The next server finds what the disk has kept: all that was flushed, and a part of the rest.
func (w *world) losePower() {
	w.power++
	next := filepath.Join(filepath.Dir(w.dir), strconv.Itoa(w.power))
	w.mu.Lock()
	w.dead = true
	err := errors.Join(os.Mkdir(next, 0o700), faultdisk.Cut(w.dir, next, rand.New(rand.NewPCG(w.random.Uint64(), 0))))
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.dir, w.dead = next, false
	w.open()
}

// call makes a request as the operator in the organization of c, or with a key.
func (w *world) call(c *customer, with *key, line string, body any) servertest.Response {
	text := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(b)
	}
	as, headers := servertest.Operator, []string{}
	switch {
	case with != nil:
		as = "ApiKey " + with.secret
	case c != nil:
		headers = append(headers, "X-Organization-Id", c.id)
	}
	r := w.server.Do(w.t, line, as, text, headers...)
	settle()
	w.trace.Note("%s: %d", line, r.StatusCode)
	return r
}

// RoundTrip is the network: it checks each request against the model, and lets its receiver answer.
func (w *world) RoundTrip(q *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	id, attempt := q.Header.Get("X-Service-Event-Id"), q.Header.Get("X-Service-Attempt")
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.hosts[q.URL.Host]
	if w.dead || s == nil {
		return nil, errors.New("no network")
	}
	w.arrived++
	s.sent[id+" "+attempt]++
	w.checkRequest(s, id, q.Header, body)
	s.turn++
	mood := s.mood
	turn := s.turn
	w.mu.Unlock()
	w.trace.Delay(q.URL.Host, id, attempt)
	w.trace.Note("%s gets %s %s", s.host, id, attempt)
	response, err := answer(q, mood, turn)
	w.trace.Delay("response", q.URL.Host, id, attempt)
	w.mu.Lock()
	if err == nil && response.StatusCode < 300 && !w.dead && !isOther(q.Header) && !slices.Contains(s.took, id) {
		s.took = append(s.took, id)
	}
	return response, err
}

// isOther reports whether a request is a test or about an audit event.
func isOther(header http.Header) bool {
	return !slices.Contains(kinds, header.Get("X-Service-Event-Type"))
}

// checkRequest says whether the request may arrive now.
func (w *world) checkRequest(s *subscription, id string, header http.Header, body []byte) {
	switch {
	case s.deleted || s.of.closed:
		w.t.Errorf("%s of %s is deleted, and got %s", s.host, s.of.name, id)
	case header.Get("X-Service-Event-Type") == "webhook_test":
	case w.held:
		w.t.Errorf("%s got %s while the queue was held", s.host, id)
	case !s.active:
		w.t.Errorf("%s got %s while it was paused", s.host, id)
	case isOther(header) || s.must[id] || s.may[id]:
	case w.events[id] == nil:
		w.early = append(w.early, arrival{s, id})
	default:
		w.t.Errorf("%s of %s got %s, which is not for it", s.host, s.of.name, id)
	}
	for i, secret := range s.secrets {
		err := signature.Verify(secret, header, body, time.Now(), 5*time.Minute)
		if err == nil {
			return
		}
		if i == len(s.secrets)-1 {
			w.t.Errorf("%s: %v", s.host, err)
		}
	}
}

// answer is what a receiver of that mood does.
func answer(q *http.Request, mood string, turn int) (*http.Response, error) {
	after := func(d time.Duration) error {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
			return nil
		case <-q.Context().Done():
			return q.Context().Err()
		}
	}
	reply := func(status int, size int, headers ...string) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewReader(make([]byte, size))), Request: q}, nil
	}
	switch mood {
	case "dead":
		return reply(500, 10)
	case "slow":
		if err := after(3 * time.Second); err != nil {
			return nil, err
		}
	case "hangs":
		return nil, after(time.Hour)
	case "hangs up":
		return nil, io.ErrUnexpectedEOF
	case "limits":
		if turn%3 != 0 {
			return reply(429, 0, "Retry-After", "30")
		}
	case "flaps":
		if turn%2 == 0 {
			return reply(503, 0)
		}
	case "huge":
		return reply(200, 1<<20)
	case "gone":
		return reply(410, 0)
	}
	if err := after(20 * time.Millisecond); err != nil {
		return nil, err
	}
	return reply(204, 0)
}

var moods = []string{"well", "well", "dead", "slow", "hangs", "hangs up", "limits", "flaps", "huge", "gone"}

// settle waits until the server has heard of a change.
func settle() { synctest.Wait() }

// published is what the server says about an accepted event.
type published struct {
	ID         string
	Deliveries int
}

// publishedOf reads the answer to one event or to several.
func publishedOf(t *testing.T, text string) []published {
	t.Helper()
	var list struct{ Data []published }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if list.Data != nil {
		return list.Data
	}
	var one published
	if err := json.Unmarshal([]byte(text), &one); err != nil {
		t.Fatal(err)
	}
	return []published{one}
}

// attempt is an attempt on record.
type attempt struct {
	EventID string `json:"event_id"`
	Number  int    `json:"attempt_number"`
	Outcome string
}

// attempts reads the whole log of a subscription.
func (w *world) attempts(s *subscription) (all []attempt) {
	for cursor := ""; ; {
		var page struct {
			Data       []attempt
			NextCursor *string `json:"next_cursor"`
		}
		r := w.call(s.of, nil, "GET /api/v1/webhooks/subscriptions/"+s.id+"/deliveries/?limit=200"+cursor, nil).Want(w.t, http.StatusOK, "")
		if err := json.Unmarshal([]byte(r.Text), &page); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}
