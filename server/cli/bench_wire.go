package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// wireTimeout bounds one request of the benchmark.
const wireTimeout = 30 * time.Second

// wire is one connection that sends requests as they are and reads of the answers what is needed. net/http would take as
// much of the processors, which all share, as the server that is measured.
type wire struct {
	conn   net.Conn
	answer *bufio.Reader
	detach func() bool
}

// dialWire connects to a host and port. The end of ctx closes the connection.
func dialWire(ctx context.Context, address string) (*wire, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn, bufio.NewReader(conn), context.AfterFunc(ctx, func() { conn.Close() })}, nil
}

func (w *wire) close() {
	w.detach()
	w.conn.Close()
}

// do sends a request, expects the given status, and returns the size of the answer's body.
func (w *wire) do(request []byte, status int) (size int, err error) {
	if err := w.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return 0, err
	}
	if _, err := w.conn.Write(request); err != nil {
		return 0, err
	}
	got, size, err := w.head()
	if err != nil {
		return 0, fmt.Errorf("read an answer: %w", err)
	}
	if got != status {
		text, _ := io.ReadAll(io.LimitReader(w.answer, int64(min(size, 2000)))) // as much as there is explains it
		return 0, fmt.Errorf("answered %d where %d was expected: %s", got, status, bytes.TrimSpace(text))
	}
	_, err = w.answer.Discard(size)
	return size, err
}

var errAnswer = errors.New("it is not HTTP/1.1 with a Content-Length")

// head reads the head of an answer. What Keyhook and our own handlers answer always has a length.
func (w *wire) head() (status, size int, err error) {
	line, err := w.answer.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, 0, errAnswer
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, errAnswer
	}
	size = -1
	for {
		if line, err = w.answer.ReadSlice('\n'); err != nil {
			return 0, 0, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if size, err = strconv.Atoi(string(value)); err != nil {
				return 0, 0, errAnswer
			}
		}
	}
	if size < 0 {
		return 0, 0, errAnswer
	}
	return status, size, nil
}
