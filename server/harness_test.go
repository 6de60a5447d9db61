package server_test

import (
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
)

// testServer is a fixture with what only the tests of this package do with it.
type testServer struct{ *servertest.Fixture }

// start starts a server that listens on loopback. change may change its options.
func start(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	return &testServer{servertest.Start(t, change...)}
}

// build returns a server that does not listen.
func build(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	return &testServer{servertest.Build(t, change...)}
}
