// Package rivals compares the limiter of Keyhook with those that others use in its place, in one run, since figures of
// different runs are not worth comparing:
//
//	cd limiter/rivals && go test -bench .
//
// It is a module of its own, so that no build of Keyhook knows its rivals. They do not all do the same. Keyhook and ulule
// count in fixed windows, sethvargo fills up a bucket at each tick, and throttled and x/time/rate let requests through at
// an even pace; x/time/rate knows no keys, so it is given the shards that ours has, and tells neither what is left nor
// until when. All keep to the memory of the process and are asked with keys of the kind that they are made for.
package rivals
