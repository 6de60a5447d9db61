package simulation_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var only = flag.Int("seed", -1, "")
var seeds = flag.Int("seeds", 10, "")

func TestSimulation(t *testing.T) {
	for seed := range *seeds {
		if *only >= 0 {
			seed = *only
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulateServer(t, seed) }) })
		if *only >= 0 {
			break
		}
	}
}
