package server_test

import (
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// The memory of a request that its client abandons is free at once, and not only when the garbage collector runs.
func TestAbandonedStreams(t *testing.T) {
	inStreams(t, func(t *testing.T, s *served) {
		c := s.streams(t, "203.0.113.9")
		defer c.conn.Close()
		for range 40 {
			c.open(1, "POST /api/v1/session/", "content-type", "application/json", "content-length", "2")
			if err := c.framer.WriteData(c.last, true, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := c.framer.WriteRSTStream(c.last, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := c.responded("422"); n != 40 {
			t.Errorf("%d of 40 requests got a response", n)
		}
		if _, anonymous := s.Server.Reserved(); anonymous != 0 {
			t.Errorf("%d bytes are still reserved", anonymous)
		}
	})
}
