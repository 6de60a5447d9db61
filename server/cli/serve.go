package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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

// Welcome tells a first operator where to begin. token is empty where it came from the settings: then it is known
// already, and nothing secret is printed.
func Welcome(out io.Writer, database, url, token string) {
	fmt.Fprintf(out, "\nWelcome to Keyhook. Its database is %s, with the organization \"Default\" and the operator \"admin\".\n\n  address  %s\n", database, url)
	if token == "" {
		fmt.Fprint(out, "  token    the one set as bootstrap.token\n\n")
		return
	}
	fmt.Fprintf(out, "  token    %s  (kept nowhere in clear)\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/api/v1/whoami/\n\n", token, token, url)
}
