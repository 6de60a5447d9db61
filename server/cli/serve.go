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
	"strings"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// sameSignal is how long a repeated signal counts as the first one. The command timeout, for example, sends SIGTERM to the process
// and then to its group.
const sameSignal = 100 * time.Millisecond

// UntilSignal returns a context that ends with the first SIGTERM, SIGINT or SIGHUP. The second one ends the process at once. A process
// that was started with SIGHUP ignored, such as by nohup, goes on ignoring it.
func UntilSignal(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		first, began := <-signals, time.Now()
		stop()
		for second := range signals {
			if second != first || time.Since(began) > sameSignal {
				break
			}
		}
		fmt.Fprintln(os.Stderr, "keyhook: stopped at once, because a second signal arrived")
		os.Exit(ExitFailure)
	}()
	return ctx
}

// StartError returns the error of a start, or nil if the start failed only because ctx has ended. A signal during a start stops
// the server like any other signal.
func StartError(ctx context.Context, log *slog.Logger, err error) error {
	if ctx.Err() == nil || exitCode(err) != ExitFailure {
		return err
	}
	log.Info("stopped before the start was complete; the next start continues")
	return nil
}

// TuneMemory sets the memory limit of the garbage collector, unless the environment sets it. bodies is the memory for request
// bodies. Near the limit the collector runs more often, so many large bodies do not take twice their memory.
func TuneMemory(bodies int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		const others = 24 << 20 // bytes of the Go heap that are not for request bodies, under full load
		debug.SetMemoryLimit(bodies + others)
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
	if system, is := errors.AsType[syscall.Errno](err); is {
		err = system // without the operation and the address, which the sentence names
	}
	mend := "set another port or address of this machine"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		mend = "stop the program that uses this port, or " + mend
	case errors.Is(err, syscall.EACCES):
		mend = "set a port above 1023, with a proxy before it, or give the process CAP_NET_BIND_SERVICE"
	}
	return nil, fault.Advise(fmt.Errorf("%w on %s (%s): %w", errListen, address, setting, err), "%s", mend)
}

// LogNotices logs what an operator must know about a store that was just opened, and what to do.
func LogNotices(log *slog.Logger, store *storage.Store, database string) {
	if path, _, err := disk.Resolve(database); err == nil {
		if found, mend := disk.Exposed(disk.Secret(path)); len(found) > 0 {
			log.Warn("other users may read the database or its key; "+mend, "files", strings.Join(found, ", "))
		}
	}
	if hold := store.Queue.Hold(); hold != nil {
		log.Warn("the queue is held, so nothing is sent; run `keyhook queue show`, and then `keyhook queue release` or `keyhook queue discard`",
			"since", time.UnixMilli(hold.Since).UTC(), "reason", hold.Reason)
	}
	if store.Directory.BootstrapRefused() {
		log.Warn("bootstrap.token is not a valid access token: the token was revoked, or the setting was made after the first authenticated request; " +
			"create a token with `keyhook token create`")
	}
}

// FirstStart has the credentials of the first operator.
type FirstStart struct {
	Token access.Credential
	Link  access.Credential // signs in to the console once; zero if Token is a setting
	Life  time.Duration     // of both; 0 is without end
}

// NewFirstStart returns new credentials, or the setting bootstrap.token.
func NewFirstStart(setting config.Bootstrap) FirstStart {
	if setting.Token.IsZero() {
		return FirstStart{access.Mint(access.TokenPrefix), access.Mint(access.LinkPrefix), 24 * time.Hour}
	}
	token, _ := access.Opaque(setting.Token.Reveal()) // config has checked its form
	return FirstStart{Token: token}
}

// Welcome prints the first steps for the first operator. url is where people reach the server. A token from the settings is not
// printed: the operator knows it.
func (f FirstStart) Welcome(out io.Writer, c config.Config, url string) {
	fmt.Fprintf(out, `
Welcome to Keyhook. The database is %s. It has the organization "Default" and the operator "admin".

  address  %s
`, c.Storage.Path, url)
	if f.Link.IsZero() {
		if c.Console.Enabled {
			fmt.Fprintf(out, "  console  %s\n", console.URL(url))
		}
		fmt.Fprint(out, "  token    the setting bootstrap.token\n\n")
		return
	}
	token := f.Token.Reveal()
	fmt.Fprintf(out, "  token    %s  (valid for %.0f hours; only its hash is stored)\n\n", token, f.Life.Hours())
	if c.Console.Enabled {
		fmt.Fprintf(out, "Console: %s\n(The link works once, within %.0f hours.)\n\n", console.SignInURL(url, f.Link.Reveal()), f.Life.Hours())
	}
	fmt.Fprintf(out, `Try it:

  curl -H 'Authorization: Bearer %s' %s/api/v1/whoami/

Create a token that does not expire. Run this command on this machine, in the directory of the database:

  keyhook token create --name NAME

`, token, url)
}
