package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/fault"
)

// Sizes of the buffer that a body is read into.
const (
	firstBuffer = 4 << 10 // where the length is not known
	spare       = 512     // beyond the last byte, so that finding the end does not grow the buffer
)

// form reads the body as one JSON object. Faults: Malformed where it is none, TooLarge; a refusal where it is not said
// to be JSON.
func (c *call) form() (*form.Form, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, fault.New(fault.Malformed, "body_required", "This needs a body: a JSON object.")
	}
	return form.Parse(body)
}

// optionalForm is form where no body means an empty object.
func (c *call) optionalForm() (*form.Form, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return &form.Form{}, nil
	}
	return form.Parse(body)
}

// body reads the whole body, within the limit of the route and the memory of the organization. The buffer grows with the
// bytes that arrive: a Content-Length alone reserves no more than paidBody.
func (c *call) body() ([]byte, error) {
	r, limit := c.request, c.route.maxBody
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if err := c.reserve(requestCost, max(0, bodyCost*(r.ContentLength-paidBody))); err != nil {
		return nil, err
	}
	c.bodyRequested = true
	body, err := c.receive(http.MaxBytesReader(c.ResponseWriter, r.Body, limit))
	if err != nil {
		c.release() // before the rest of the body is drained
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, tooLarge(limit)
		}
		if errors.Is(err, errMemory) {
			return nil, err
		}
		return nil, fault.New(fault.Malformed, "unreadable_body", "The body ended early.").Because(err)
	}
	c.reserved.body = body
	if len(body) == 0 {
		return nil, nil // chunked, and no chunk: of no type either
	}
	return body, isJSON(r.Header)
}

// receive reads until the end. Each time the buffer doubles, it reserves the memory first.
func (c *call) receive(r io.Reader) ([]byte, error) {
	most := c.route.maxBody + spare
	first := int64(firstBuffer)
	if c.request.ContentLength > 0 {
		most = c.request.ContentLength + spare
		first = min(most, paidBody)
	}
	buffer := make([]byte, 0, first)
	for {
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if errors.Is(err, io.EOF) {
			return buffer, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buffer) < cap(buffer) {
			continue
		}
		size := min(2*int64(cap(buffer)), most)
		if more := size - max(int64(cap(buffer)), paidBody); more > 0 {
			if err := c.reserve(bodyCost*more, 0); err != nil {
				return nil, err
			}
		}
		grown := make([]byte, len(buffer), size)
		copy(grown, buffer)
		buffer = grown
	}
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "too_large", "The limit here is %d bytes.", limit)
}

// isJSON refuses a body that does not claim to be JSON in UTF-8, sent as it is.
func isJSON(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body without a Content-Encoding."}
	}
	contentType := h.Get("Content-Type")
	if contentType == "application/json" {
		return nil
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	charset := parameters["charset"]
	if err != nil || mediaType != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &refusal{http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8."}
	}
	return nil
}

// maxDiscarded is how much of a body that nobody wants is read: the largest that some route takes, and 32 MiB beyond.
const maxDiscarded = maxBatchBody + 32<<20

// anonymousDiscardTime bounds how long a request without a valid credential may keep its connection by sending a body.
const anonymousDiscardTime = 5 * time.Second

// discardBody reads the rest of the body and keeps none of it. Many clients write the whole request before they read the answer.
// If the server closed the connection meanwhile, as net/http does beyond 256 KiB, they would see a reset and no reason.
// The time for reading a request bounds this too. There are four exceptions: a body that is too long to reach its end; a
// client that waits to be asked for its body and has not been (RFC 9110 section 10.1.1); HTTP/2, where a client reads the
// answer while it sends; and a proxy, which asks without the body of the request that it holds.
func (c *call) discardBody() {
	r := c.request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxDiscarded || r.ProtoMajor > 1 || c.dialect != "" ||
		!c.bodyRequested && r.Header.Get("Expect") != "" {
		return
	}
	if !c.authenticated {
		// A writer without deadlines, as in tests without a connection, needs none.
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(time.Now().Add(anonymousDiscardTime))
	}
	// A client that breaks off has no use for the answer.
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
}
