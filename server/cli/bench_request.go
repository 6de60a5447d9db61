package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// stampDigits is the length of a time in Unix nanoseconds, until the year 2286.
const stampDigits = 19

// stampEnd closes the data of an event, after its stamp. The body that is delivered ends with it too, which is how the
// receiver finds the stamp without decoding anything.
const stampEnd = "}}"

// request is the text of an HTTP request, written once and sent many times. Only the stamps in it differ from one sending
// to the next: each is the time at which its event was sent, so that the receiver can tell how long that took.
type request struct {
	text   []byte
	stamps []int // where they are
}

// stamped appends the request to dst with the given time in its stamps.
func (r request) stamped(dst []byte, at time.Time) []byte {
	dst = append(dst, r.text...)
	now := at.UnixNano()
	for _, place := range r.stamps {
		strconv.AppendInt(dst[place:place], now, 10)
	}
	return dst
}

// newRequest returns a request with a body, which may be empty.
func newRequest(method, path, authorization, body string) request {
	text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + authorization + "\r\n"
	if body != "" {
		text += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	r := request{text: []byte(text + "\r\n" + body)}
	for place := len(text); ; {
		next := strings.Index(string(r.text[place:]), emptyStamp+stampEnd)
		if next < 0 {
			return r
		}
		r.stamps = append(r.stamps, place+next)
		place += next + stampDigits
	}
}

var emptyStamp = "1" + strings.Repeat("0", stampDigits-1)

// eventText returns an event to publish, of the given size in bytes where its type leaves room for that.
func eventText(eventType string, size int) string {
	const begin = `{"type":"`
	middle, end := `","data":{"text":"`, `","at":`+emptyStamp+stampEnd
	filling := size - len(begin) - len(eventType) - len(middle) - len(end)
	return begin + eventType + middle + strings.Repeat("x", max(0, filling)) + end
}

// publishRequest publishes one event of the type, or a batch of n where n is not 0.
func publishRequest(key, eventType string, size, n int) request {
	event := eventText(eventType, size)
	if n == 0 {
		return newRequest("POST", "/api/v1/events/", "ApiKey "+key, event)
	}
	batch := `{"events":[` + strings.Join(slices.Repeat([]string{event}, n), ",") + `]}`
	return newRequest("POST", "/api/v1/events/batch/", "ApiKey "+key, batch)
}

// deliveredText returns what Keyhook sends for an event: the same data, in its envelope.
func deliveredText(eventType string, size int) string {
	_, data, _ := strings.Cut(eventText(eventType, size), `,"data":`)
	return `{"id":"evt_00000000000000000000000000","type":"` + eventType + `","timestamp":"2026-01-01T00:00:00.000Z",` +
		`"organization_id":"org_00000000000000000000000000","data":` + data
}

// sentAt returns the stamp of a body that was delivered.
func sentAt(body []byte) (time.Time, bool) {
	digits, found := strings.CutSuffix(string(body[max(0, len(body)-stampDigits-len(stampEnd)):]), stampEnd)
	nanoseconds, err := strconv.ParseInt(digits, 10, 64)
	return time.Unix(0, nanoseconds), found && err == nil
}
