package sender

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// maxResponseBody is how many bytes of a response are read.
const maxResponseBody = 8 << 10

var buffers = sync.Pool{New: func() any { return new([maxResponseBody]byte) }}

// readResponse reads the part of a response that may be stored. If that is all of it, the connection can be reused. The values of
// the sent headers are masked, because some receivers return the request.
func readResponse(r *http.Response, sent []webhook.Header) (string, error) {
	// After 101 the body is the connection, and nobody sends anything on it.
	if r.StatusCode == http.StatusSwitchingProtocols || r.ContentLength == 0 {
		return "", nil
	}
	buffer := buffers.Get().(*[maxResponseBody]byte)
	defer buffers.Put(buffer)
	var n int
	var err error
	for n < len(buffer) && err == nil {
		var more int
		more, err = r.Body.Read(buffer[n:])
		n += more
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return webhook.CutBody(webhook.MaskHeaders(buffer[:n], sent, n == len(buffer) || err != nil)), err
}

// retryAfter returns how long the receiver asks to wait (RFC 9110, section 10.2.3: seconds or a date), at most limit.
// It returns 0 if the header is missing or not valid.
func retryAfter(h http.Header, now time.Time, limit time.Duration) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(limit/time.Second) { // more digits than an int64 holds are too long as well
			return limit
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), limit)
}
