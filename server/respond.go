package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/webhook"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept. One long list does not keep its memory for ever.
const maxPooled = 64 << 10

// write encodes v and sends it. It sends nothing if v cannot be encoded. It also refuses a large response if the
// organization has no memory left: many slow readers could keep such responses in memory at once.
func (x *exchange) write(status int, mediaType string, v any) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false) // responses are not HTML, and nosniff says so
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	if size := int64(buffer.Cap()); size > maxPooled && status < http.StatusBadRequest {
		if err := x.reserve(size, 0); err != nil {
			return err
		}
	}
	x.send(status, mediaType, buffer.Bytes())
	return nil
}

// maxMeasured is the size of the largest body whose Content-Length net/http sets by itself.
const maxMeasured = 2048

// send sends an encoded body. It ignores write errors: a client that disconnects is not a failure of the server, and the log
// line has the number of bytes sent. It leaves Content-Length to net/http if it can: a map of more than eight headers costs
// twice, because net/http copies it.
func (x *exchange) send(status int, mediaType string, body []byte) {
	x.set("Content-Type", mediaType)
	if len(body) > maxMeasured {
		x.set("Content-Length", strconv.Itoa(len(body)))
	}
	x.WriteHeader(status)
	_, _ = x.Write(body)
}

func (x *exchange) ok(v any) error { return x.write(http.StatusOK, "application/json", v) }

// created responds with a new resource and its path.
func (x *exchange) created(path string, v any) error {
	x.set("Location", x.base+path)
	return x.write(http.StatusCreated, "application/json", v)
}

// put responds with a resource at its path that was created or changed.
func (x *exchange) put(path string, created bool, v any) error {
	if created {
		return x.created(path, v)
	}
	return x.ok(v)
}

func (x *exchange) noContent() error {
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// noStore marks a response that shows a secret: no cache may store it (RFC 9111 section 5.2.2.5).
func (x *exchange) noStore() { x.set("Cache-Control", "no-store") }

// listBody is a page of a list.
type listBody[B any] struct {
	Data       []B     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// writePage writes a page of rows. One extra row means that more rows follow. A page that is not full may be followed by more
// rows too, if the store ended its search early.
func writePage[R, B any](x *exchange, p form.Page, rows []R, body func(R) B, at func(R) form.Position) error {
	response := listBody[B]{Data: make([]B, 0, min(len(rows), p.Limit))}
	after := p.Ended
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		after = at(rows[len(rows)-1])
	}
	if after != (form.Position{}) {
		next := p.Next(after)
		response.HasMore, response.NextCursor = true, &next
	}
	for _, row := range rows {
		response.Data = append(response.Data, body(row))
	}
	return x.ok(response)
}

// listRows responds with a page of a list that the store orders by row id. The store lists at most limit rows with ids below
// before; 0 starts at the newest row.
func listRows[R, B any](x *exchange, list func(ctx context.Context, before int64, limit int) ([]R, error), body func(R) B, row func(R) int64) error {
	p, err := x.page()
	if err != nil {
		return err
	}
	found, err := list(x.request.Context(), p.After.Row, p.More())
	if err != nil {
		return err
	}
	return writePage(x, p, found, body, func(r R) form.Position { return form.Position{Row: row(r)} })
}

// searchRows is listRows for a list that may have the items of all organizations, and whose search may end early. next is then
// the row id at which the next page begins, and otherwise 0.
func searchRows[R, B any](x *exchange, list func(ctx context.Context, organization, before int64, limit int) (found []R, next int64, err error),
	body func(R) B, row func(R) int64) error {
	organization, err := x.listed()
	if err != nil {
		return err
	}
	p, err := x.page()
	if err != nil {
		return err
	}
	found, next, err := list(x.request.Context(), organization, p.After.Row, p.More())
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: next}
	return writePage(x, p, found, body, func(r R) form.Position { return form.Position{Row: row(r)} })
}

// show responds with the resource that find returns.
func show[R, B any](x *exchange, find func(*exchange) (R, error), body func(R) B) error {
	found, err := find(x)
	if err != nil {
		return err
	}
	return x.ok(body(found))
}

// timestamp is a time in a response, in milliseconds since the epoch. A nil pointer is null.
type timestamp int64

// MarshalJSON writes RFC 3339 in UTC with milliseconds.
func (i timestamp) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(webhook.TimeFormat)+2)
	b = append(b, '"')
	b = webhook.AppendTime(b, int64(i))
	return append(b, '"'), nil
}

// orEmpty returns a text, or the empty one if it is null.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nullIfEmpty returns s, or null if it is empty.
func nullIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// setRateHeaders sets the response headers that say how many requests are left in the window of a key: the headers of
// draft-ietf-httpapi-ratelimit-headers-10 and their older X- forms. All values are parts of one string, which saves allocations
// in every request.
func (x *exchange) setRateHeaders(r limiter.Result, now time.Time) {
	var buffer [160]byte
	b := append(buffer[:0], `"plan";q=`...)
	b = strconv.AppendInt(b, r.Limit, 10)
	b = append(b, `;w=60`...)
	policy := len(b)
	b = append(b, `"plan";r=`...)
	b = strconv.AppendInt(b, r.Remaining, 10)
	b = append(b, `;t=`...)
	b = strconv.AppendInt(b, check.Seconds(r.Reset), 10)
	state := len(b)
	b = strconv.AppendInt(b, r.Limit, 10)
	limit := len(b)
	b = strconv.AppendInt(b, r.Remaining, 10)
	remaining := len(b)
	b = strconv.AppendInt(b, now.Add(r.Reset+time.Second-1).Unix(), 10)

	text := string(b)
	x.set("RateLimit-Policy", text[:policy])
	x.set("RateLimit", text[policy:state])
	x.set("X-RateLimit-Limit", text[state:limit])
	x.set("X-RateLimit-Remaining", text[limit:remaining])
	x.set("X-RateLimit-Reset", text[remaining:])
}
