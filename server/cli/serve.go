package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/keyhook/keyhook/storage/fault"
)

// UntilSignal returns a context that ends with the first SIGTERM or SIGINT. The second one ends the process at once.
func UntilSignal(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(ExitFailure)
	}()
	return ctx
}

// otherMemory is what the process needs in the Go heap beside request bodies, under full load.
const otherMemory = 24 << 20 // bytes

// TuneMemory tells the garbage collector how much memory a server may use, where the environment does not. Bodies may take
// the given number of bytes. Near the limit the collector runs more often, so a flood of large bodies does not take twice
// their memory.
func TuneMemory(bodies int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(150) // saves processor time at full load, for a few megabytes
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bodies + otherMemory)
	}
}

// errListen says that an address cannot be listened on.
var errListen = errors.New("cannot listen")

// Listen listens on the address of a setting. The error says what to do about it.
func Listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	mend := "choose another address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		mend = "stop what listens there, or choose another address"
	case errors.Is(err, syscall.EACCES):
		mend = "ports below 1024 are for root alone; choose another, such as 8080"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		mend = "this machine has no such address; choose one that it has, or 0.0.0.0 for all"
	}
	return nil, fault.Advise(fmt.Errorf("%w: %s: %w", errListen, setting, err), "%s", mend)
}

// Welcome tells a first operator where to begin. token is empty where it came from the settings: then it is known
// already, and nothing secret is printed.
func Welcome(out io.Writer, database, url, token string) {
	fmt.Fprintf(out, "\nWelcome to Keyhook. Its database is %s, with the organization \"Default\" and the operator \"admin\".\n\n  address  %s\n", database, url)
	if token == "" {
		fmt.Fprint(out, "  token    the one set as bootstrap.token\n\n")
		return
	}
	fmt.Fprintf(out, "  token    %s  (valid for 24 hours, and kept nowhere in clear)\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/api/v1/whoami/\n\nCreate a token that lasts, on this machine:\n\n  keyhook token create --name NAME\n\n", token, token, url)
}
