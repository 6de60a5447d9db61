package receive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// feedOptions are the flags of listen that read a feed.
type feedOptions struct {
	from, token, subscription, cursorFile string
	eventTypes                            []string
	api                                   client.Client
}

func (o *feedOptions) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "`URL` of a server whose events are read, instead of listening; needs --token")
	flags.StringVar(&o.token, client.FlagToken, "", "access `token` or API key (or "+client.EnvToken+", which is safer: ps shows flags)")
	flags.StringVar(&o.api.Organization, client.FlagOrganization, "", "act in the organization with this `id` or external id")
	flags.StringVar(&o.subscription, "subscription", "", "`id` or external id of the subscription to read")
	flags.StringSliceVar(&o.eventTypes, "event-types", nil, "without --subscription, create a subscription to these `types` for the time of the command (default: every type)")
	flags.StringVar(&o.cursorFile, "cursor-file", "", "`file` that keeps how far the command has read; without it, the command begins with new events")
	output.Exclusive(cmd, "from", "port")
	output.Exclusive(cmd, "event-types", "subscription")
	output.Exclusive(cmd, "event-types", "cursor-file")
}

// connect checks the flags and finds the server.
func (o *feedOptions) connect() (err error) {
	named := o.subscription != "" || len(o.eventTypes) > 0
	o.token = cmp.Or(o.token, os.Getenv(client.EnvToken))
	switch {
	case o.from == "" && (named || o.cursorFile != ""):
		return errors.New("--subscription, --event-types and --cursor-file need --from, the URL of the server")
	case o.from == "":
		return nil
	case o.eventTypes != nil && len(o.eventTypes) == 0:
		return errors.New("--event-types is empty; name types, or leave it out for every type")
	case !named && o.cursorFile != "":
		return errors.New("--cursor-file needs --subscription, because another subscription is deleted at the end")
	case o.token == "":
		return fmt.Errorf("--from needs a token; give --%s, or set %s", client.FlagToken, client.EnvToken)
	}
	o.api, err = o.api.At(o.from, o.token)
	return err
}

const (
	pathSubscriptions = "/api/v1/webhooks/subscriptions/"
	feedPause         = 5 * time.Second // before an event is read again that the program has refused, and before a server is called again
)

// readFeed passes the events of a subscription to the program until ctx ends.
func (l *listener) readFeed(ctx context.Context) error {
	o := &l.feed
	query := url.Values{"wait": {"30"}}
	if o.subscription == "" {
		remove, err := l.subscribe(ctx)
		if err != nil {
			return err
		}
		defer remove()
	} else if o.cursorFile == "" {
		query = url.Values{"since": {"9999-12-31T23:59:59Z"}} // the end of the feed, whatever the clock of this machine says
	}
	cursor, err := os.ReadFile(o.cursorFile)
	if o.cursorFile != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--cursor-file: %w", err)
	}
	at, err := strings.TrimSpace(string(cursor)), error(nil) // no file yet is no error
	if o.cursorFile != "" {
		err = keep(o.cursorFile, at) // a file that cannot be written is found before the first event
	}
	if query.Has("since") {
		at, err = l.readPage(ctx, query)
	}
	fmt.Fprintf(l.notes, "Reading the events of subscription %s from %s. Stop with Ctrl-C.\n\n", output.Escape(o.subscription), output.Escape(o.from))
	for err == nil && ctx.Err() == nil {
		if at != "" {
			query = url.Values{"wait": {"30"}, "after": {at}}
		}
		var next string
		next, err = l.readPage(ctx, query)
		if next != "" && next != at && o.cursorFile != "" {
			err = errors.Join(err, keep(o.cursorFile, next))
		}
		at = cmp.Or(next, at)
	}
	return err
}

// subscribe creates a subscription for the time of the command. remove deletes it.
func (l *listener) subscribe(ctx context.Context) (remove func(), err error) {
	types := l.feed.eventTypes
	if len(types) == 0 || len(types) == 1 && types[0] == "*" {
		types = []string{}
	}
	var created struct{ ID, Secret string }
	wanted := map[string]any{"url": nil, "event_types": types, "description": "keyhook listen, deleted at its end"}
	err = l.feed.api.Call(ctx, http.MethodPost, pathSubscriptions, wanted, http.StatusCreated, &created)
	l.feed.subscription, l.secret = created.ID, redact.New(created.Secret)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), feedPause)
		defer cancel()
		if _, err := l.feed.api.Do(ctx, http.MethodDelete, pathSubscriptions+url.PathEscape(created.ID)+"/", nil); err != nil {
			l.note("the subscription %s was not deleted; delete it with keyhook subscriptions delete: %v", created.ID, err)
		}
	}, err
}

// readPage passes the next events to the program. It returns the cursor of the last one that was accepted; empty if there is none. An
// error ends the command. Without a server, and after an event that was refused, it pauses.
func (l *listener) readPage(ctx context.Context, query url.Values) (cursor string, err error) {
	r, err := l.feed.api.Send(ctx, http.MethodGet, pathSubscriptions+url.PathEscape(l.feed.subscription)+"/feed/?"+query.Encode(), nil)
	switch {
	case ctx.Err() != nil:
		return "", nil
	case err != nil:
		l.note("the server cannot be reached, and the command tries again: %v", err)
		return "", pause(ctx)
	case r.Status == http.StatusTooManyRequests || r.Status >= http.StatusInternalServerError:
		l.note("the server responds with %d, and the command tries again", r.Status)
		return "", pause(ctx)
	case r.Status == http.StatusGone:
		return "", fault.Advise(l.feed.api.Refusal(r), "delete the file of --cursor-file to begin with the oldest event")
	case r.Status == http.StatusBadRequest && query.Has("after"):
		return "", fault.Advise(l.feed.api.Refusal(r), "delete the file of --cursor-file to begin with the oldest event, or name the right file")
	case !r.OK():
		return "", l.feed.api.Refusal(r)
	}
	var page struct {
		Data []struct {
			Cursor, Body string
			Headers      map[string]string
		}
		NextCursor string `json:"next_cursor"`
	}
	if err := json.Unmarshal(r.Body, &page); err != nil {
		return "", fault.Advise(errors.New("the response is not a feed, so it does not come from Keyhook"), "check --from")
	}
	for _, e := range page.Data {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/feed", nil)
		for name, value := range e.Headers {
			r.Header.Set(name, value)
		}
		if d := l.take(httptest.NewRecorder(), r, []byte(e.Body)); d.Status < 200 || d.Status > 299 {
			return cursor, pause(ctx)
		}
		cursor = e.Cursor
	}
	return page.NextCursor, nil
}

func pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, feedPause)
	defer cancel()
	<-ctx.Done()
	return nil
}

// keep writes a cursor, so that the file has the old one or the new one after a crash.
func keep(name, cursor string) error {
	err := os.WriteFile(name+".new", []byte(cursor+"\n"), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		err = fmt.Errorf("--cursor-file: %w", err)
	}
	return err
}
