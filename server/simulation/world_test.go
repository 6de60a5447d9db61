package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
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
	began  time.Time
	power  int // how often the power has failed
	dirs   int // of databases, besides the first

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

// living are the subscriptions that exist.
func (c *customer) living() (list []*subscription) {
	for _, s := range c.subs {
		if !s.deleted && !c.closed {
			list = append(list, s)
		}
	}
	return list
}

// key is an API key and what is known about it.
type key struct {
	id, secret string
	scope      string
	revoked    bool
	rotated    bool
	ends       time.Time // zero: never
}

// event is an accepted event. Its amount is what filters look at.
type event struct {
	id, kind string
	amount   int
	place    int // in the order of publication
	of       *customer
	unseen   bool // its customer had no webhooks then
}

// subscription is a subscription and its receiver.
type subscription struct {
	id, host   string
	of         *customer
	secret     string
	previous   string    // the secret before
	overlap    time.Time // until then, the previous secret signs too
	rotating   bool      // nobody knows which secret signs
	kinds      []string  // patterns
	least      int       // its filter: amount gte least; 0 is none
	ordered    bool
	active     bool
	deleted    bool
	recovering bool // its retries are due at once
	repeated   bool // recovered, replayed, redelivered or discarded, so that the order says nothing any more
	mood       string
	turn       int

	must  map[string]bool // events that it must get, by id
	may   map[string]bool // events that it may get: what a change, a repair or a loss of the answer leaves open
	never map[string]bool // events that were discarded before an attempt had arrived, or between two
	sent  map[string]int  // requests by "event attempt"
	took  []string        // the events that it took, in the order of the first successes
	last  map[string]try  // the last request of each event
	born  int             // the place of the last event before the subscription
}

// try is a request to a receiver. Its event is on the way until the request has ended.
type try struct {
	number int
	open   bool
	ended  time.Time
	took   bool          // the receiver has taken the event, and the server knows it
	wait   time.Duration // how long the next request must wait at least
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

// know changes what the world knows. Receivers read it.
func (w *world) know(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// options are the options of the store in a directory.
func (w *world) options(dir string) storage.Options {
	o := storagetest.Options(w.t, filepath.Join(dir, "keyhook.db"))
	o.Synchronous, o.EncryptionKey, o.KeepEvents = storage.Full, strings.Repeat("ab", 32), 30*24*time.Hour
	return o
}

// waiting are the events that have a delivery, were not taken, are not on the way, and cannot have been given up yet.
func (s *subscription) waiting() (ids []string) {
	for id := range s.must {
		if last := s.last[id]; !slices.Contains(s.took, id) && !last.open && last.number < 5 {
			ids = append(ids, id)
		}
	}
	return ids
}

// open starts the server on the present directory.
func (w *world) open() {
	store, closeStore := storagetest.OpenWith(w.t, w.options(w.dir))
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
	next := w.newDir()
	w.mu.Lock()
	w.forget(2 * time.Second)
	w.dead = true
	err := faultdisk.Cut(w.dir, next, rand.New(rand.NewPCG(w.random.Uint64(), 0)))
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.dir, w.dead = next, false
	w.open()
}

// restore goes on with a restored backup, whose queue is held.
func (w *world) restore() {
	w.stop()
	next := w.newDir()
	backup := filepath.Join(next, "backup.db")
	_, err := storage.Backup(w.t.Context(), storage.BackupOptions{Path: filepath.Join(w.dir, "keyhook.db"), To: backup})
	if err == nil {
		_, err = storage.Restore(w.t.Context(), w.options(next), backup)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.dir, w.held = next, true
	w.open()
	time.Sleep(30 * time.Second)
	w.release()
}

// newDir makes a directory for the next database.
func (w *world) newDir() string {
	w.dirs++
	dir := filepath.Join(filepath.Dir(w.dir), strconv.Itoa(w.dirs))
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return dir
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
	w.checkSignatures(s, q.Header, body)
	s.turn++
	mood := s.mood
	turn := s.turn
	number, _ := strconv.Atoi(attempt)
	if !isTest(q.Header) {
		s.last[id] = try{number: number, open: true}
	}
	w.mu.Unlock()
	w.trace.Delay(q.URL.Host, id, attempt)
	w.trace.Note("%s gets %s %s", s.host, id, attempt)
	response, err := answer(q, mood, turn)
	w.trace.Delay("response", q.URL.Host, id, attempt)
	w.mu.Lock()
	if !isTest(q.Header) {
		s.last[id] = w.outcome(s, number, q, response)
	}
	if s.last[id].took && !isOther(q.Header) && !slices.Contains(s.took, id) {
		s.took = append(s.took, id)
	}
	return response, err
}

// outcome is a request that has ended. The next one need not wait if it may have been cut off, because there was no response, or if it ended
// during a recovery.
func (w *world) outcome(s *subscription, number int, q *http.Request, r *http.Response) try {
	now := try{number: number, ended: time.Now()}
	switch {
	case w.dead || r == nil && q.Context().Err() != nil:
	case r != nil && r.StatusCode < 300:
		now.took = true
	case number < 5 && !s.recovering:
		now.wait = []time.Duration{12 * time.Second, 48 * time.Second, 192 * time.Second, 480 * time.Second}[number-1]
		if r != nil && r.StatusCode == http.StatusTooManyRequests {
			now.wait = max(now.wait, retryAfter)
		}
	}
	return now
}

// forget forgets how requests have ended lately: a loss of power may have come before the record.
func (w *world) forget(lately time.Duration) {
	for _, s := range w.hosts {
		for id, t := range s.last {
			if time.Since(t.ended) < lately {
				t.took, t.wait = false, 0
				s.last[id] = t
			}
		}
	}
}

func isTest(header http.Header) bool { return header.Get("X-Service-Event-Type") == "webhook_test" }

// isOther reports whether a request is a test or about an audit event.
func isOther(header http.Header) bool {
	return !slices.Contains(kinds, header.Get("X-Service-Event-Type"))
}

// checkRequest says whether the request may arrive now.
func (w *world) checkRequest(s *subscription, id string, header http.Header, body []byte) {
	before, number := s.last[id], header.Get("X-Service-Attempt")
	switch {
	case s.deleted || s.of.closed:
		w.t.Errorf("%s of %s is deleted, and got %s", s.host, s.of.name, id)
	case isTest(header):
	case s.never[id]:
		w.t.Errorf("%s got %s, which was discarded", s.host, id)
	case before.took:
		w.t.Errorf("%s got %s again %v after it had taken it", s.host, id, time.Since(before.ended))
	case strconv.Itoa(before.number+1) == number && time.Since(before.ended) < before.wait-time.Millisecond: // times are on record in milliseconds
		w.t.Errorf("%s got attempt %s of %s %v after the last one", s.host, number, id, time.Since(before.ended))
	case s.ordered && slices.ContainsFunc(slices.Collect(maps.Values(s.last)), func(t try) bool { return t.open }):
		w.t.Errorf("%s is ordered, and got %s beside another request", s.host, id)
	case s.of.plan == "free":
		w.t.Errorf("%s got %s, and the plan has no webhooks", s.host, id)
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
}

// checkSignatures says whether the right secrets sign, in both schemes.
func (w *world) checkSignatures(s *subscription, header http.Header, body []byte) {
	for name, verify := range map[string]func(string, http.Header, []byte, time.Time, time.Duration) error{
		"own": signature.Verify, "standard": signature.VerifyStandard,
	} {
		switch left := time.Until(s.overlap); {
		case s.rotating:
		case verify(s.secret, header, body, time.Now(), time.Minute) != nil:
			w.t.Errorf("%s: the secret does not sign in the %s scheme", s.host, name)
		case s.previous != "" && left.Abs() > time.Second && (left > 0) != (verify(s.previous, header, body, time.Now(), time.Minute) == nil):
			w.t.Errorf("%s: whether the previous secret signs in the %s scheme is wrong, with %v left", s.host, name, left)
		}
	}
}

const retryAfter = 90 * time.Second

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
			return reply(429, 0, "Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
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
func publishedOf(t *testing.T, r servertest.Response) []published {
	t.Helper()
	if list := decode[struct{ Data []published }](t, r); list.Data != nil {
		return list.Data
	}
	return []published{decode[published](t, r)}
}

// decode reads the body of a response.
func decode[T any](t *testing.T, r servertest.Response) (body T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Text), &body); err != nil {
		t.Fatalf("%v: %s", err, r.Text)
	}
	return body
}

// ids reads the ids of a list.
func (w *world) ids(c *customer, with *key, path string) (found []string) {
	r := w.call(c, with, "GET /api/v1/"+path, nil).Want(w.t, http.StatusOK, "")
	for _, thing := range decode[struct{ Data []struct{ ID string } }](w.t, r).Data {
		found = append(found, thing.ID)
	}
	return found
}

// feed reads the whole feed of a subscription.
func (w *world) feed(s *subscription) (found []string) {
	for after := ""; ; {
		page := decode[struct {
			Data []struct {
				ID   string `json:"event_id"`
				Type string
			}
			Next string `json:"next_cursor"`
			More bool   `json:"has_more"`
		}](w.t, w.call(s.of, nil, "GET /api/v1/webhooks/subscriptions/"+s.id+"/feed/?limit=20"+after, nil).Want(w.t, http.StatusOK, ""))
		for _, e := range page.Data {
			if slices.Contains(kinds, e.Type) {
				found = append(found, e.ID)
			}
		}
		if after = "&after=" + page.Next; !page.More {
			return found
		}
	}
}

// health is what the server says about a subscription.
type health struct {
	Status    string
	Failures  int     `json:"consecutive_failures"`
	Pending   int     `json:"pending_deliveries"`
	BlockedBy *string `json:"blocked_by"`
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
		page := decode[struct {
			Data       []attempt
			NextCursor *string `json:"next_cursor"`
		}](w.t, w.call(s.of, nil, "GET /api/v1/webhooks/subscriptions/"+s.id+"/deliveries/?limit=200"+cursor, nil).Want(w.t, http.StatusOK, ""))
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}
