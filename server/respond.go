package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/keyhook/keyhook/storage/webhook"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept. One long list does not keep its memory for ever.
const maxPooled = 64 << 10

// write encodes v and sends it. It sends nothing if v cannot be encoded. It also sends nothing if the response is large and the
// organization has no memory left for it, because many slow readers could hold such responses at once.
func (c *call) write(status int, mediaType string, v any) error {
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
		if err := c.reserve(size, 0); err != nil {
			return err
		}
	}
	c.send(status, mediaType, buffer.Bytes())
	return nil
}

// send sends an encoded body. It ignores write errors: a client that disconnects is not a failure of the server, and the log
// line has the number of bytes sent.
func (c *call) send(status int, mediaType string, body []byte) {
	c.set("Content-Type", mediaType)
	c.set("Content-Length", strconv.Itoa(len(body)))
	c.WriteHeader(status)
	_, _ = c.Write(body)
}

func (c *call) ok(v any) error { return c.write(http.StatusOK, "application/json", v) }

// created responds with a new resource and its path.
func (c *call) created(path string, v any) error {
	c.set("Location", c.base+path)
	return c.write(http.StatusCreated, "application/json", v)
}

func (c *call) noContent() error {
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// noStore marks a response that shows a secret: no cache may store it (RFC 9111 section 5.2.2.5).
func (c *call) noStore() { c.set("Cache-Control", "no-store") }

// timestamp is a time in a response, in milliseconds since the epoch. A nil pointer is null.
type timestamp int64

// MarshalJSON writes RFC 3339 in UTC with milliseconds.
func (i timestamp) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(webhook.TimeFormat)+2)
	b = append(b, '"')
	b = webhook.AppendTime(b, int64(i))
	return append(b, '"'), nil
}

// nullIfEmpty returns s, or null if it is empty.
func nullIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
