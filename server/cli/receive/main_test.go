package receive_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs many tests at once, because most of them wait for seconds.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil { // the command line comes later, so it wins
		panic(err)
	}
	os.Exit(m.Run())
}
