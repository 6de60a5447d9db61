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

// maxPooled keeps one long list from pinning its memory for good.
const maxPooled = 64 << 10

// write encodes v and sends it. Nothing is sent where v cannot be encoded, nor where the answer is large and the
// organization has no memory left for it: the reader may be slow, and each connection may wait for one.
func (c *call) write(status int, mediaType string, v any) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= maxPooled {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false) // an answer is no HTML page, and nosniff says so
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if size := int64(buffer.Cap()); size > maxPooled && status < http.StatusBadRequest {
		if err := c.reserve(size, 0); err != nil {
			return err
		}
	}
	c.send(status, mediaType, buffer.Bytes())
	return nil
}

// send sends a body that is encoded already. That a client has gone is no failure of the server: the log line shows how
// much went out.
func (c *call) send(status int, mediaType string, body []byte) {
	c.set("Content-Type", mediaType)
	c.set("Content-Length", strconv.Itoa(len(body)))
	c.WriteHeader(status)
	_, _ = c.Write(body)
}

func (c *call) ok(v any) error { return c.write(http.StatusOK, "application/json", v) }

// created answers with a new resource and its path.
func (c *call) created(path string, v any) error {
	c.set("Location", c.base+path)
	return c.write(http.StatusCreated, "application/json", v)
}

func (c *call) noContent() error {
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// secret marks an answer that shows a secret: nobody on the way may keep it (RFC 9111 section 5.2.2.5).
func (c *call) noStore() { c.set("Cache-Control", "no-store") }

// instant is a time of an answer, in milliseconds since the epoch. As a pointer, nil is null.
type timestamp int64

// MarshalJSON writes RFC 3339 in UTC with milliseconds.
func (i timestamp) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(webhook.TimeFormat)+2)
	b = append(b, '"')
	b = webhook.AppendTime(b, int64(i))
	return append(b, '"'), nil
}

// orNull is s, or null where it is empty.
func nullIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
