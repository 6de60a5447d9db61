package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestHeaderFields(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields string
		status int
	}{
		"a hundred are accepted":                            {names(100), 200},
		"more are refused":                                  {names(101), 431},
		"more with the same name are refused":               {strings.Repeat("X-A: 1\r\n", 101), 431},
		"as many as fit into the allowed bytes are refused": {names(2500), 431},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			conn := s.pipes.connect("203.0.113.9")
			defer conn.Close()
			go fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n%s\r\n", tt.fields)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			var problem struct{ Code string }
			if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
				t.Fatal(err)
			}
			if isRefused := tt.status == 431; response.StatusCode != tt.status || isRefused != (problem.Code == "too_many_header_fields") || isRefused != response.Close {
				t.Errorf("status %d, code %q, closes %v", response.StatusCode, problem.Code, response.Close)
			}
		})
	}
}

// nginx makes a 500 of most statuses.
func TestHeaderFieldsThroughNginx(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn := s.pipes.connect("203.0.113.9")
	defer conn.Close()
	go fmt.Fprintf(conn, "GET /api/v1/authz/nginx/ HTTP/1.1\r\nHost: x\r\n%s\r\n", names(101))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if h := response.Header; response.StatusCode != 403 || h.Get("X-Service-Status") != "431" || h.Get("X-Service-Code") != "too_many_header_fields" {
		t.Errorf("status %d, %v", response.StatusCode, h)
	}
}

// names returns header fields of different names.
func names(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "x%d:\r\n", i)
	}
	return text.String()
}
