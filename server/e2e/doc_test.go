// Package e2e tests the whole program from outside: it starts the built binary, calls it over HTTP and by its commands, and
// receives its deliveries. It imports only packages for tests, and the same test can run against any build of the program.
//
// Set KEYHOOK_BINARY to the path of a binary to test that one; every user must be able to run it. Otherwise the source is
// built once, with the race detector if the tests have it. The attacks measure what a well-behaved customer notices while
// another customer misbehaves:
//
//	go test ./server/e2e -run '^$' -bench Attack -benchtime 1x -timeout 60m
//
// The other benchmarks measure deliveries, large files, backups and starts. Each round of Scale fills its files again:
//
//	go test ./server/e2e -run '^$' -bench 'Delivery|Scale' -benchtime 20000x -timeout 60m
package e2e
