package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// connection is a connection of a Direct. It carries one request at a time.
type connection struct {
	net.Conn // plain or TLS
	endpoint endpoint
	socket   syscall.RawConn // nil: not a socket, as in some tests
	idle     *idleConnections
	in       *bufio.Reader
	out      *bufio.Writer

	maxHeader int64     // bytes
	headRoom  int64     // bytes of the header that may still be read; negative: the header is complete
	idleSince time.Time // when its last request ended
}

// newConnection returns a connection over conn, which is plain itself or TLS over it.
func newConnection(d *Direct, to endpoint, plain, conn net.Conn) *connection {
	c := &connection{Conn: conn, endpoint: to, idle: &d.idle, maxHeader: d.other.MaxResponseHeaderBytes}
	c.in, c.out = bufio.NewReaderSize(headerReader{c}, d.other.ReadBufferSize), bufio.NewWriterSize(conn, d.other.WriteBufferSize)
	if file, ok := plain.(syscall.Conn); ok {
		c.socket, _ = file.SyscallConn() // it fails only if the connection is closed
	}
	return c
}

// errLongHeader refuses a response whose header is too long, together with the 1xx responses before it.
var errLongHeader = errors.New("the header of the response is too long")

// headerReader reads from a connection, and no more of a header than may be read.
type headerReader struct{ *connection }

func (r headerReader) Read(p []byte) (int, error) {
	if r.headRoom == 0 {
		return 0, errLongHeader
	}
	if r.headRoom > 0 && int64(len(p)) > r.headRoom {
		p = p[:r.headRoom]
	}
	n, err := r.Conn.Read(p)
	if r.headRoom > 0 {
		r.headRoom -= int64(n)
	}
	return n, err
}

// isQuiet reports whether the receiver has neither closed an idle connection nor sent anything on it. Otherwise the connection
// must not be used again, because some bytes may be lost.
func (c *connection) isQuiet() bool {
	if c.socket == nil {
		return true
	}
	var state error
	err := c.socket.Read(func(fd uintptr) bool {
		_, state = syscall.Read(int(fd), make([]byte, 1)) // never waits; no error means a byte or the end
		return true
	})
	if err != nil || !errors.Is(state, syscall.EAGAIN) {
		return false
	}
	if _, isTLS := c.Conn.(*tls.Conn); !isTLS {
		return true
	}
	// TLS may have read the end from the socket already.
	_ = c.SetReadDeadline(longAgo)
	_, err = c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Time{}) == nil
}

// longAgo is a deadline that ends every read and write at once.
var longAgo = time.Unix(1, 0)

// exchange sends the request and reads the header of the response. When the context of the request ends, reads and writes end.
func (c *connection) exchange(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	body := &responseBody{connection: c, ctx: ctx, stopWatching: context.AfterFunc(ctx, func() { _ = c.SetDeadline(longAgo) })}
	if err := c.send(r); err != nil {
		return nil, body.fail(fmt.Errorf("send request: %w", err))
	}
	response, err := c.receive(r)
	if err != nil {
		return nil, body.fail(fmt.Errorf("read response: %w", err))
	}
	body.rest, body.keepsOpen = response.Body, !response.Close && !r.Close && response.StatusCode != http.StatusSwitchingProtocols
	if response.Body == http.NoBody {
		body.end(true, io.EOF)
	} else {
		response.Body = body
	}
	return response, nil
}

// send writes the request. http.Request.Write takes 5 % more of the processor time of a delivery, because it sorts the header and
// repairs its values.
func (c *connection) send(r *http.Request) error {
	head := append(c.out.AvailableBuffer(), "POST "...)
	head = append(append(head, r.URL.RequestURI()...), " HTTP/1.1\r\n"...)
	head = appendHeader(head, "Host", r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			head = appendHeader(head, name, value)
		}
	}
	if r.Close {
		head = appendHeader(head, "Connection", "close")
	}
	head = appendHeader(head, "Content-Length", strconv.FormatInt(r.ContentLength, 10))
	if _, err := c.out.Write(append(head, "\r\n"...)); err != nil {
		return err
	}
	if r.ContentLength > 0 {
		if _, err := io.CopyN(c.out, r.Body, r.ContentLength); err != nil {
			return fmt.Errorf("body: %w", err)
		}
	}
	return c.out.Flush()
}

func appendHeader(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// validateHeader refuses a header that would change where the request begins or ends.
func validateHeader(h http.Header) error {
	for name, values := range h {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			return fmt.Errorf("the header %s is not valid here", name)
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("the header name %q is not valid", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("the value of the header %s is not valid", name)
			}
		}
	}
	return nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // it was read
	}
}

// receive reads the header of the response. A response of 1xx announces another one, except 101.
func (c *connection) receive(r *http.Request) (*http.Response, error) {
	c.headRoom = c.maxHeader
	for {
		response, err := http.ReadResponse(c.in, r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			c.headRoom = -1
			return response, nil
		}
	}
}

// responseBody is the body of a response. When it has been read to its end, its connection is used again.
type responseBody struct {
	connection   *connection
	ctx          context.Context
	stopWatching func() bool // ends the watch of ctx; false: ctx has ended
	rest         io.ReadCloser
	keepsOpen    bool  // the receiver keeps the connection open
	ended        error // what a read after the end returns; nil: it has not ended
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.ended != nil {
		return 0, b.ended
	}
	n, err := b.rest.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.end(true, err)
	case err != nil:
		err = b.fail(err)
	}
	return n, err
}

// Close implements io.Closer. If the body was not read to its end, Close closes the connection. It does not call Close of the
// rest, which would read all of it first.
func (b *responseBody) Close() error {
	if b.ended == nil {
		b.end(false, http.ErrBodyReadAfterClose)
	}
	return nil
}

// fail ends the use of the connection after an error. If the context has ended, the error only says that the deadline is over.
// Then fail returns why.
func (b *responseBody) fail(err error) error {
	if b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	b.end(false, err)
	return err
}

// end ends the use of the connection for this response. next is what the next read returns. A connection on which more has come
// than a complete response is not used again.
func (b *responseBody) end(complete bool, next error) {
	b.ended = next
	if b.stopWatching() && complete && b.keepsOpen && b.connection.in.Buffered() == 0 {
		b.connection.idle.put(b.connection)
		return
	}
	b.connection.Close()
}
