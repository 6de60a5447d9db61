// Package e2e tests the whole program from outside: it starts the built binary, talks to it over HTTP, and receives what it
// sends. It imports no package of the program but test helpers, so the same test can run against any build of it.
//
// Set KEYHOOK_BINARY to the path of a binary to test that one; otherwise the source is built once. The attacks measure what
// a well-behaved customer notices while another one misbehaves:
//
//	go test ./server/e2e -run '^$' -bench Attack -benchtime 1x -timeout 60m
package e2e
