package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/storage"
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

// otherMemory is the part of the Go heap that is not for request bodies, under full load.
const otherMemory = 24 << 20 // bytes

// TuneMemory sets the memory limit of the garbage collector, unless the environment sets it. bodies is the memory for request
// bodies. Near the limit the collector runs more often, so many large bodies do not take twice their memory.
func TuneMemory(bodies int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(150) // saves processor time at full load, for a few megabytes
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bodies + otherMemory)
	}
}

// errListen means that a server cannot listen on an address.
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
		mend = "stop the program that listens there, or choose another address"
	case errors.Is(err, syscall.EACCES):
		mend = "only root may use ports below 1024, so choose another port, such as 8080"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		mend = "choose an address of this machine, or 0.0.0.0 for all of them"
	}
	return nil, fault.Advise(fmt.Errorf("%w: %s: %w", errListen, setting, err), "%s", mend)
}

// Welcome prints the first steps for the first operator. token is empty if it comes from the settings. Then the operator knows
// it, and Welcome prints no secret.
func Welcome(out io.Writer, database, url, token string) {
	fmt.Fprintf(out, `
Welcome to Keyhook. Its database is %s, with the organization "Default" and the operator "admin".

  address  %s
`, database, url)
	if token == "" {
		fmt.Fprint(out, "  token    the setting bootstrap.token\n\n")
		return
	}
	fmt.Fprintf(out, `  token    %[1]s  (valid for 24 hours; only its hash is stored)

Try it:

  curl -H 'Authorization: Bearer %[1]s' %[2]s/api/v1/whoami/

Create a token that does not expire, on this machine:

  keyhook token create --name NAME

`, token, url)
}

// LogNotices logs what an operator must know about a store that was just opened, and what to do.
func LogNotices(log *slog.Logger, store *storage.Store) {
	if hold := store.Hold(); hold != nil {
		log.Warn("nothing is sent: the queue is held; look at it with `keyhook queue show`, then run `keyhook queue release` or `keyhook queue discard`",
			"since", time.UnixMilli(hold.Since).UTC(), "reason", hold.Reason)
	}
	if store.BootstrapRefused() {
		log.Warn("bootstrap.token is not a valid access token: it was revoked, or it was set after the first authenticated request; " +
			"create a token with `keyhook token create`")
	}
}
