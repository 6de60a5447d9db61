// Package demo owns the command that shows the whole of Keyhook in a few seconds. It uses only the HTTP API of a server that
// it starts, and checks everything that it shows.
package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/child"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/fault"
)

// New returns the command demo.
func New() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show all of Keyhook in a few seconds, in a temporary directory",
		Long: `Show all of Keyhook in a few seconds. The demo starts a server and a receiver in a temporary directory. It creates an
API key and a subscription. It publishes events, and lets deliveries fail and recover. Then it rotates the signing
secret and revokes the key. Each step prints what it did and what it checked. At the end, the demo removes the
directory. The exit code is 0 only if every check passed.`,
		Example: "  keyhook demo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("the demo took longer than %s", limit))
			defer cancel()
			return run(ctx, cmd.OutOrStdout())
		},
	}
}

// The time limits of the whole demo, and of each wait in it.
const (
	limit = time.Minute
	wait  = 15 * time.Second
)

// run runs the steps. A step returns an error if a check fails.
func run(ctx context.Context, out io.Writer) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "keyhook-demo-")
	if err != nil {
		return fault.Advise(fmt.Errorf("cannot make a temporary directory: %w", err), "set TMPDIR to a directory that you may write to")
	}
	defer os.RemoveAll(dir)
	s := &demo{out: out}
	if s.receiver, err = newReceiver(ctx, filepath.Join(dir, "receiver.pem")); err != nil {
		return fmt.Errorf("cannot start a receiver: %w", err)
	}
	s.server, err = child.Start(ctx, dir, "KEYHOOK_EGRESS_CA_FILE="+filepath.Join(dir, "receiver.pem"), "KEYHOOK_WEBHOOKS_RETRY_BASE=300ms")
	if err != nil {
		return err
	}
	defer s.server.Kill()
	s.operator = client.Client{Base: s.server.URL, Authorization: "Bearer " + s.server.Token}
	for i, step := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"A server and a receiver", s.begin},
		{"The operator creates a customer", s.customer},
		{"The customer creates an API key with fewer permissions", s.key},
		{"The customer subscribes to events", s.subscribe},
		{"An event is signed and delivered", s.deliver},
		{"The receiver fails twice and recovers", s.retry},
		{"The signing secret is rotated, and the old one still signs", s.rotate},
		{"The API key is revoked", s.revoke},
		{"The server stops without losing anything", s.stop},
	} {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, step.title)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("step %d (%s): %w\n\nThe last lines of the server's log:\n%s", i+1, step.title, err, s.server.Tail())
		}
	}
	fmt.Fprintf(out, "\nAll checks passed, in %.1f s.\n", time.Since(began).Seconds())
	return nil
}

// demo is the state that the steps share.
type demo struct {
	out      io.Writer
	server   *child.Server
	receiver *receiver

	operator, owner, holder client.Client // with the operator's token, the customer's token, and the customer's API key
	keyID                   string
	subscription            string
	secret, oldSecret       string
}

// say prints one sentence.
func (s *demo) say(format string, args ...any) { fmt.Fprintf(s.out, "   "+format+"\n", args...) }

func (s *demo) begin(ctx context.Context) error {
	var me struct {
		User struct {
			Name string `json:"name"`
		} `json:"user"`
		Permissions []string `json:"permissions"`
	}
	if err := s.operator.Call(ctx, "GET", "/api/v1/whoami/", nil, http.StatusOK, &me); err != nil {
		return err
	}
	s.say("One process serves %s from one file, %s.", s.server.URL, filepath.Base(s.server.Database))
	s.say("An HTTPS receiver listens at %s. The server trusts its certificate.", s.receiver.url)
	s.say("The bootstrap token belongs to the operator %q, who has %d permissions.", me.User.Name, len(me.Permissions))
	return nil
}

func (s *demo) customer(ctx context.Context) error {
	var organization, user created
	var token struct {
		Token string `json:"token"`
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/organizations/", map[string]any{"name": "Acme", "plan": "growth"}, http.StatusCreated, &organization); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/users/", map[string]any{"email": "dev@acme.example", "name": "Acme's developer"}, http.StatusCreated, &user); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "PUT", "/api/v1/organizations/"+organization.ID+"/members/"+user.ID+"/", map[string]any{"role": "owner"}, http.StatusOK, nil); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/users/"+user.ID+"/access-tokens/", map[string]any{"organization_id": organization.ID}, http.StatusCreated, &token); err != nil {
		return err
	}
	s.owner = client.Client{Base: s.server.URL, Authorization: "Bearer " + token.Token}
	s.say("The organization Acme has the plan growth and one member, with the role owner and an access token.")
	if err := s.owner.Call(ctx, "GET", "/api/v1/plans/", nil, http.StatusForbidden, nil); err != nil {
		return err
	}
	s.say("Checked: that token works in Acme, but not for the operator's own endpoints (403).")
	return nil
}

func (s *demo) key(ctx context.Context) error {
	var key struct {
		created
		Key             string `json:"key"`
		Prefix          string `json:"key_prefix"`
		Scope           string `json:"scope"`
		ScopeNotGranted string `json:"scope_not_granted"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/api-keys/", map[string]any{"name": "backend", "scope": "events:write platform:write"}, http.StatusCreated, &key); err != nil {
		return err
	}
	if err := expect("the granted scope", key.Scope, "events:write"); err != nil {
		return err
	}
	s.keyID = key.ID
	s.holder = client.Client{Base: s.server.URL, Authorization: "ApiKey " + key.Key}
	s.say("Requested the scope \"events:write platform:write\", got %q. Nobody can grant a permission that they do not have.", key.Scope)
	s.say("The key was shown once. From now on only its prefix is shown: %s", key.Prefix)
	if err := s.holder.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/", nil, http.StatusForbidden, nil); err != nil {
		return err
	}
	s.say("Checked: the key cannot read subscriptions, although its creator can (403).")
	return nil
}

func (s *demo) subscribe(ctx context.Context) error {
	var sub struct {
		created
		Secret string `json:"secret"`
		Status string `json:"status"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/", map[string]any{"url": s.receiver.url, "event_types": []string{"order.*"}}, http.StatusCreated, &sub); err != nil {
		return err
	}
	if err := expect("the status", sub.Status, "healthy"); err != nil {
		return err
	}
	s.subscription, s.secret = sub.ID, sub.Secret
	s.say("%s receives all events \"order.*\". Its signing secret was shown once.", s.receiver.url)
	return nil
}

func (s *demo) revoke(ctx context.Context) error {
	if err := s.owner.Call(ctx, "DELETE", "/api/v1/api-keys/"+s.keyID+"/", nil, http.StatusNoContent, nil); err != nil {
		return err
	}
	err := s.holder.Call(ctx, "POST", "/api/v1/events/", map[string]any{"type": "order.paid", "data": map[string]any{}}, http.StatusUnauthorized, nil)
	if err != nil {
		return err
	}
	s.say("Checked: the next request with the key was refused (401).")
	return nil
}

func (s *demo) stop(ctx context.Context) error {
	if err := s.server.Stop(ctx); err != nil {
		return err
	}
	s.say("Checked: after SIGTERM the server finished its work and exited with code 0.")
	return nil
}

// created is the common part of the responses to a creation.
type created struct {
	ID string `json:"id"`
}

// expect compares a value with the expected one.
func expect(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q instead of %q", what, got, want)
	}
	return nil
}
