package webhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const eventPath = "/api/v1/events/"

func TestEvents(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.*")
	known := map[string]string{"as": servertest.Bearer(token), "org": owner.Organization.ID, "sub": sub.ID}
	accepted := func(name, body string, want ...string) servertest.Scenario {
		return servertest.OK(name, "POST "+eventPath, body, 202, want...)
	}
	refused := func(name, body, field, code string) servertest.Scenario {
		return servertest.Bad(name, "POST "+eventPath, body, 422, "", `"field":"`+field+`","code":"`+code+`"`)
	}
	f.Run(t, known, []servertest.Scenario{
		accepted("are published", `{"type":"user.created","data":{"id":1}}`, `{"id":"evt_`, `"type":"user.created","timestamp":"20`, `Z","deliveries":1,"held":0,"notice":null}`),
		accepted("may match no subscription", `{"type":"order.created","data":{}}`, `"deliveries":0,"held":0,"notice":"no_subscription"}`),
		accepted("may have a type of 128 characters", `{"type":"`+strings.Repeat("a", 128)+`","data":{}}`),
		accepted("may nest to the maximum depth", `{"type":"a","data":{"a":`+strings.Repeat("[", 97)+strings.Repeat("]", 97)+`}}`),
		refused("need a type", `{"data":{}}`, "type", "missing"),
		refused("need data", `{"type":"a"}`, "data", "missing"),
		refused("have an object for data", `{"type":"a","data":[]}`, "data", "wrong_type"),
		refused("have a lower-case type", `{"type":"User.Created","data":{}}`, "type", "invalid"),
		refused("have one type", `{"type":"user.*","data":{}}`, "type", "invalid"),
		refused("have a type of at most 128 characters", `{"type":"`+strings.Repeat("a", 129)+`","data":{}}`, "type", "too_long"),
		refused("have no other field", `{"type":"a","data":{},"payload":{}}`, "payload", "unknown_field"),
		refused("have an idempotency key of limited length", `{"type":"a","data":{},"idempotency_key":"`+strings.Repeat("x", 256)+`"}`, "idempotency_key", "too_long"),
		refused("have an idempotency key", `{"type":"a","data":{},"idempotency_key":""}`, "idempotency_key", "blank"),
		refused("have an idempotency key that a header can have", `{"type":"a","data":{},"idempotency_key":" k"}`, "idempotency_key", "invalid"),
		refused("have one without a space at its end", `{"type":"a","data":{},"idempotency_key":"k "}`, "idempotency_key", "invalid"),
		accepted("may have spaces in their idempotency key", `{"type":"a","data":{},"idempotency_key":"k 1"}`),
		refused("have an idempotency key without NUL", `{"type":"a","data":{},"idempotency_key":"a\u0000"}`, "idempotency_key", "invalid"),
		servertest.OK("are listed", "GET "+eventPath+"?limit=1", "", 200, `"organization_id":"{org}"`, `"deliveries":0`, `"has_more":true`),
		servertest.Bad("are only of valid ids", "GET "+eventPath+"evt_01h455vb4pex5vsknk084sn02q/", "", 404, "not_found"),
		servertest.Bad("are not changed", "PATCH "+eventPath+"evt_01h455vb4pex5vsknk084sn02q/", `{}`, 405, "method_not_allowed", "Allow: GET, HEAD"),
	})
}

func TestEventDataIsKeptAsWritten(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	storagetest.Subscription(t, f.Store, storagetest.Operator(t, f.Store), "https://example.com/", "user.created")
	const written = `{ "big" : 12345678901234567890.10, "e" : 1E+400, "text" : "<&>\u00e9\/ a  b", "list" : [ 1 , 2 ],` + "\n\t" + `"null":null,"":"" }`
	const sent = `{"big":12345678901234567890.10,"e":1E+400,"text":"<&>\u00e9\/ a  b","list":[1,2],"null":null,"":""}`
	for name, body := range map[string]string{
		"published alone":    `{"type":"user.created", "data":` + written + `}`,
		"published in batch": `{"events": [ {"data" : ` + written + ` , "type":"user.created"} ] }`,
	} {
		t.Run(name, func(t *testing.T) {
			path := eventPath
			if strings.Contains(name, "batch") {
				path += "batch/"
			}
			got := f.Do(t, "POST "+path, servertest.Operator, body).Want(t, 202, "")
			_, id, _ := strings.Cut(got.Text, `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			event, _, err := f.Store.History.Event(t.Context(), storagetest.Operator(t, f.Store).Organization.RowID, id)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(string(event.Body), `,"data":`+sent+`}`) {
				t.Errorf("kept %s", event.Body)
			}
			read := f.Do(t, "GET "+eventPath+id, servertest.Operator, "").Want(t, 200, "")
			if !strings.Contains(read.Text, `"data":`+sent+`,"deliveries":[{"subscription_id":"sub_`) || !strings.Contains(read.Text, `"state":"pending","attempts":0,"next_attempt_at":null}]`) {
				t.Errorf("read %s", read.Text)
			}
			if read.Field("body") != string(event.Body) {
				t.Errorf("the body of deliveries is %s, not %s", read.Field("body"), event.Body)
			}
		})
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	event := func(header []string, body string) servertest.Response {
		return f.Do(t, "POST "+eventPath, servertest.Operator, body, header...)
	}
	first := event(nil, `{"type":"user.created","data":{"n":1},"idempotency_key":"k1"}`).Want(t, 202, "")
	if first.Header.Get("Idempotent-Replayed") != "" {
		t.Error("the first response says that it is replayed")
	}
	if got := f.Do(t, "GET "+eventPath+first.Field("id")+"/", servertest.Operator, "").Want(t, 200, "").Field("idempotency_key"); got != "k1" {
		t.Errorf("the event has the key %q", got)
	}
	for name, tt := range map[string]struct {
		header []string
		body   string
	}{
		"in the body":                   {nil, `{"type":"user.created","data":{"n":1},"idempotency_key":"k1"}`},
		"in the header":                 {[]string{"Idempotency-Key", "k1"}, `{"type":"user.created","data":{"n":1}}`},
		"in both":                       {[]string{"Idempotency-Key", "k1"}, `{"type":"user.created","data":{"n":1},"idempotency_key":"k1"}`},
		"with other white space, order": {nil, `{"idempotency_key":"k1", "data": {"n": 1}, "type":"user.created"}`},
	} {
		t.Run("gets the first response again: "+name, func(t *testing.T) {
			again := event(tt.header, tt.body).Want(t, 202, "")
			if again.Header.Get("Idempotent-Replayed") != "true" {
				t.Error("no Idempotent-Replayed")
			}
			if diff := cmp.Diff(first.Text, again.Text); diff != "" {
				t.Errorf("response (-first +again):\n%s", diff)
			}
		})
	}
	for name, tt := range map[string]struct {
		header []string
		body   string
		code   string
		field  string
	}{
		"other data":          {nil, `{"type":"user.created","data":{"n":2},"idempotency_key":"k1"}`, "idempotency_key_reused", "idempotency_key: idempotency_key_reused"},
		"another type":        {nil, `{"type":"user.deleted","data":{"n":1},"idempotency_key":"k1"}`, "idempotency_key_reused", "idempotency_key: idempotency_key_reused"},
		"two keys":            {[]string{"Idempotency-Key", "k2"}, `{"type":"a","data":{},"idempotency_key":"k3"}`, "validation_failed", "idempotency_key: conflicting"},
		"an empty header":     {[]string{"Idempotency-Key", ""}, `{"type":"a","data":{}}`, "validation_failed", "idempotency_key: invalid"},
		"an oversized header": {[]string{"Idempotency-Key", strings.Repeat("x", 256)}, `{"type":"a","data":{}}`, "validation_failed", "idempotency_key: invalid"},
	} {
		t.Run("is refused with "+name, func(t *testing.T) {
			got := event(tt.header, tt.body).Want(t, 422, tt.code)
			if diff := cmp.Diff([]string{tt.field}, got.Fields()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("belongs to one organization", func(t *testing.T) {
		_, token := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		got := f.Do(t, "POST "+eventPath, servertest.Bearer(token), `{"type":"a","data":{},"idempotency_key":"k1"}`).Want(t, 202, "")
		if got.Header.Get("Idempotent-Replayed") != "" {
			t.Error("the response of another organization is replayed")
		}
	})
	t.Run("creates one event of 32 concurrent requests", func(t *testing.T) {
		var mu sync.Mutex
		responses := map[string]int{}
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				got := event(nil, `{"type":"user.created","data":{"n":3},"idempotency_key":"many"}`).Want(t, 202, "")
				mu.Lock()
				defer mu.Unlock()
				responses[got.Text]++
				responses[got.Header.Get("Idempotent-Replayed")]++
			})
		}
		wg.Wait()
		if len(responses) != 3 || responses["true"] != 31 {
			t.Errorf("responses %v", responses)
		}
	})
}

func TestBatch(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	batch := func(events string) servertest.Response {
		return f.Do(t, "POST "+eventPath+"batch/", servertest.Bearer(token), `{"events":[`+events+`]}`)
	}
	many := func(n int, event string) string { return strings.TrimSuffix(strings.Repeat(event+",", n), ",") }
	const good = `{"type":"user.created","data":{"n":1}}`
	published := func() int { return len(f.All(t, servertest.Bearer(token), eventPath, "id", 200)) }

	t.Run("gets a response in the same order", func(t *testing.T) {
		got := batch(`{"type":"a","data":{}},{"type":"b","data":{}},{"type":"c","data":{}}`).Want(t, 202, "")
		var testResponse struct{ Data []struct{ Type string } }
		if err := json.Unmarshal([]byte(got.Text), &testResponse); err != nil || fmt.Sprint(testResponse.Data) != "[{a} {b} {c}]" {
			t.Errorf("response %s %v", got.Text, err)
		}
	})
	t.Run("may have a thousand events", func(t *testing.T) {
		before := published()
		batch(many(1000, good)).Want(t, 202, "")
		if after := published(); after != before+1000 {
			t.Errorf("%d events more, want 1000", after-before)
		}
	})
	t.Run("is refused as a whole", func(t *testing.T) {
		before := published()
		got := batch(good+`,{"type":"B","data":[]},7,{"data":{},"x":1},`+good).Want(t, 422, "validation_failed")
		want := []string{"events.1.data: wrong_type", "events.1.type: invalid", "events.2: wrong_type", "events.3.type: missing", "events.3.x: unknown_field"}
		less := func(list []string) string { return strings.Join(list, "\n") }
		if len(got.Fields()) != len(want) {
			t.Errorf("problems:\n%s\nwant:\n%s", less(got.Fields()), less(want))
		}
		for _, field := range want {
			if !strings.Contains(less(got.Fields()), field) {
				t.Errorf("no %s in:\n%s", field, less(got.Fields()))
			}
		}
		if after := published(); after != before {
			t.Errorf("%d events are published all the same", after-before)
		}
	})
	t.Run("has at least one event and at most a thousand", func(t *testing.T) {
		for _, n := range []int{0, 1001} {
			if fields := batch(many(n, good)).Want(t, 422, "").Fields(); len(fields) != 1 || fields[0] != "events: out_of_range" {
				t.Errorf("%d events: %q", n, fields)
			}
		}
	})
	t.Run("refuses two events with the same key", func(t *testing.T) {
		got := batch(many(2, `{"type":"a","data":{},"idempotency_key":"twice"}`)).Want(t, 422, "")
		if diff := cmp.Diff([]string{"events.1.idempotency_key: duplicate"}, got.Fields()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
	t.Run("is replayed if every event is", func(t *testing.T) {
		const keyed = `{"type":"a","data":{},"idempotency_key":"b1"},{"type":"b","data":{},"idempotency_key":"b2"}`
		first, again := batch(keyed).Want(t, 202, ""), batch(keyed).Want(t, 202, "")
		if first.Text != again.Text || first.Header.Get("Idempotent-Replayed") != "" || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("first %s, again %s", first.Text, again.Text)
		}
		if partly := batch(keyed+","+good).Want(t, 202, ""); partly.Header.Get("Idempotent-Replayed") != "" {
			t.Error("a batch with something new in it says that it is replayed")
		}
	})
	t.Run("names the event whose key belongs to another event", func(t *testing.T) {
		batch(`{"type":"a","data":{},"idempotency_key":"taken"}`).Want(t, 202, "")
		const other = `{"type":"b","data":{},"idempotency_key":"taken"}`
		for events, want := range map[string]string{other: "events.0.idempotency_key", good + "," + other: "events.1.idempotency_key"} {
			got := batch(events).Want(t, 422, "idempotency_key_reused")
			if diff := cmp.Diff([]string{want + ": idempotency_key_reused"}, got.Fields()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		}
	})
	t.Run("refuses a key for the whole batch", func(t *testing.T) {
		f.Do(t, "POST "+eventPath+"batch/", servertest.Bearer(token), `{"events":[`+good+`]}`, "Idempotency-Key", "x").Want(t, 422, "")
	})
}

func TestEventSize(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	sized := func(n int) string { // an event of n bytes
		const frame = `{"type":"a","data":{"x":""}}`
		return `{"type":"a","data":{"x":"` + strings.Repeat("x", n-len(frame)) + `"}}`
	}
	const limit = 256 << 10
	f.Do(t, "POST "+eventPath, servertest.Operator, sized(limit)).Want(t, 202, "")
	f.Do(t, "POST "+eventPath, servertest.Operator, sized(limit+1)).Want(t, 413, "too_large")
	for size, status := range map[int]int{limit: 202, limit + 1: 413} { // in chunks, so the length is not known
		r := httptest.NewRequest(http.MethodPost, eventPath, strings.NewReader(sized(size)))
		r.ContentLength = -1
		r.Header = http.Header{"Authorization": {servertest.Operator}, "Content-Type": {"application/json"}}
		if got := f.Handle(r); got.StatusCode != status {
			t.Errorf("%d bytes in chunks: status %d, want %d", size, got.StatusCode, status)
		}
	}
	f.Do(t, "POST "+eventPath+"batch/", servertest.Operator, `{"events":[`+sized(limit)+`]}`).Want(t, 202, "")
	got := f.Do(t, "POST "+eventPath+"batch/", servertest.Operator, `{"events":[`+sized(99)+","+sized(limit+1)+`]}`).Want(t, 413, "too_large")
	if !strings.Contains(got.Field("detail"), "events.1") {
		t.Errorf("the event is not named: %s", got.Field("detail"))
	}
	full := `{"events":[` + strings.Repeat(sized(limit-1)+",", 63) + sized(limit-99) + `]}` // commas, and what is around the events
	batch := full + strings.Repeat(" ", 16<<20-len(full))
	f.Do(t, "POST "+eventPath+"batch/", servertest.Operator, batch).Want(t, 202, "")
	f.Do(t, "POST "+eventPath+"batch/", servertest.Operator, batch+" ").Want(t, 413, "too_large")
}

func TestEventsByState(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	stranger, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	theirs, _ := storagetest.Subscription(t, f.Store, stranger, "https://example.com/", "order.paid")
	as := servertest.Bearer(token)
	f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":"https://example.com/","event_types":["order.paid"],"external_id":"shop"}`).Want(t, 201, "")
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.net/", "order.late")
	paid, late := storagetest.Publish(t, f.Store, owner, "order.paid").ID, storagetest.Publish(t, f.Store, owner, "order.late").ID
	nobody := storagetest.Publish(t, f.Store, owner, "order.lost").ID
	list := func(query string) []string { return f.All(t, as, eventPath+"?type=order.*&"+query, "id", 200) }

	for query, want := range map[string][]string{
		"state=pending": {late, paid}, "state=delivered": nil, "state=exhausted": nil, "state=dropped": nil, "state=expired": nil, "state=nobody": {nobody},
		"subscription_id=shop": {paid}, "subscription_id=" + sub.ID: {late}, "state=nobody&subscription_id=shop": {nobody, late},
		"state=pending&subscription_id=" + sub.ID: {late}, "state=delivered&subscription_id=shop": nil,
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	f.Do(t, "GET "+eventPath+"?state=lost", as, "").Want(t, 400, "invalid_parameter")
	for _, missing := range []string{theirs.ID, theirs.ID + "&state=nobody", "unknown"} {
		f.Do(t, "GET "+eventPath+"?subscription_id="+missing, as, "").Want(t, 404, "not_found")
	}
	got := f.Do(t, "GET "+eventPath+"?organization=all&subscription_id="+sub.ID, servertest.Operator, "").Want(t, 400, "invalid_parameter")
	if !strings.Contains(got.Text, "X-Organization-Id") {
		t.Error(got.Text)
	}
	all := f.Do(t, "GET "+eventPath+"?organization=all&state=nobody&type=order.*", servertest.Operator, "").Want(t, 200, "")
	if !strings.Contains(all.Text, nobody) || strings.Contains(all.Text, paid) {
		t.Error(all.Text)
	}
}
