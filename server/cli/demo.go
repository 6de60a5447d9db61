package cli

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
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the whole of Keyhook in a few seconds, in a temporary directory",
		Long: `Show the whole of Keyhook in a few seconds: start a server and a receiver in a temporary directory,
create a key and a subscription, publish, fail, recover, rotate and revoke, and say at each step what
was sent and how it was checked. Nothing is left behind. The exit code is 0 only if every check held.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), demoLimit, fmt.Errorf("the demo took longer than %s", demoLimit))
			defer cancel()
			return demo(ctx, cmd.OutOrStdout())
		},
	}
}

// demoLimit bounds the whole demo, and demoWait each thing in it that is waited for.
const (
	demoLimit = time.Minute
	demoWait  = 15 * time.Second
)

// demo plays the scenes, each of which returns an error if what it shows did not happen.
func demo(ctx context.Context, out io.Writer) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "keyhook-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w; set TMPDIR to one that is writable", err)
	}
	defer os.RemoveAll(dir)
	s := &stage{out: out}
	if s.receiver, err = newReceiver(filepath.Join(dir, "ca.pem")); err != nil {
		return fmt.Errorf("start a receiver: %w", err)
	}
	defer func() { _ = s.receiver.Close() }()
	s.server, err = child.Start(ctx, dir, "KEYHOOK_EGRESS_CA_FILE="+filepath.Join(dir, "ca.pem"), "KEYHOOK_WEBHOOKS_RETRY_BASE=300ms")
	if err != nil {
		return err
	}
	defer s.server.Kill()
	s.operator = client.Client{Base: s.server.URL, Authorization: "Bearer " + s.server.Token}
	for i, scene := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"A server and a receiver", s.begin},
		{"A customer, set up by the operator", s.customer},
		{"An API key, narrower than its creator", s.key},
		{"A webhook subscription", s.subscribe},
		{"An event, signed and delivered", s.deliver},
		{"A receiver that fails twice and recovers", s.retry},
		{"A secret rotated, the old one signing beside it", s.rotate},
		{"A key revoked", s.revoke},
		{"A stop that loses nothing", s.stop},
	} {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, scene.title)
		if err := scene.play(ctx); err != nil {
			return fmt.Errorf("scene %d (%s): %w\n\nwhat the server logged last:\n%s", i+1, scene.title, err, s.server.Tail())
		}
	}
	fmt.Fprintf(out, "\nAll of it was checked, in %.1f s.\n", time.Since(began).Seconds())
	return nil
}

// stage is what the scenes share.
type stage struct {
	out      io.Writer
	server   *child.Server
	receiver *receiver

	operator, owner, holder client.Client // by the operator's token, a customer's token, and the customer's API key
	organization            string
	keyID                   string
	subscription            string
	secret, oldSecret       string
}

// say tells the audience one thing.
func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, "   "+format+"\n", args...) }

func (s *stage) begin(ctx context.Context) error {
	var me struct {
		User struct {
			Name string `json:"name"`
		} `json:"user"`
		Permissions []string `json:"permissions"`
	}
	if err := s.operator.Call(ctx, "GET", "/api/v1/whoami/", nil, http.StatusOK, &me); err != nil {
		return err
	}
	s.say("one process serves %s out of one file, %s", s.server.URL, filepath.Base(s.server.Database))
	s.say("an HTTPS receiver listens at %s, with a CA of its own that the server was told to trust", s.receiver.url)
	s.say("the bootstrap token is the operator's (%q, %d permissions)", me.User.Name, len(me.Permissions))
	return nil
}

func (s *stage) customer(ctx context.Context) error {
	var organization, user created
	var token struct {
		Token string `json:"token"`
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/organizations/", object{"name": "Acme", "plan": "growth"}, http.StatusCreated, &organization); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/users/", object{"email": "dev@acme.example", "name": "Acme's developer"}, http.StatusCreated, &user); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "PUT", "/api/v1/organizations/"+organization.ID+"/members/"+user.ID+"/", object{"role": "owner"}, http.StatusOK, nil); err != nil {
		return err
	}
	if err := s.operator.Call(ctx, "POST", "/api/v1/users/"+user.ID+"/access-tokens/", object{"organization_id": organization.ID}, http.StatusCreated, &token); err != nil {
		return err
	}
	s.organization = organization.ID
	s.owner = client.Client{Base: s.server.URL, Authorization: "Bearer " + token.Token}
	s.say("organization Acme on the plan growth, with one member in the role owner, who got an access token")
	if err := s.owner.Call(ctx, "GET", "/api/v1/plans/", nil, http.StatusForbidden, nil); err != nil {
		return err
	}
	s.say("checked: that token opens Acme, and not the operator's own endpoints (403)")
	return nil
}

func (s *stage) key(ctx context.Context) error {
	var key struct {
		created
		Key             string `json:"key"`
		Prefix          string `json:"key_prefix"`
		Scope           string `json:"scope"`
		ScopeNotGranted string `json:"scope_not_granted"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/api-keys/", object{"name": "backend", "scope": "events:write platform:write"}, http.StatusCreated, &key); err != nil {
		return err
	}
	if err := expect("the granted scope", key.Scope, "events:write"); err != nil {
		return err
	}
	s.keyID = key.ID
	s.holder = client.Client{Base: s.server.URL, Authorization: "ApiKey " + key.Key}
	s.say("asked for \"events:write platform:write\", granted %q: nobody can grant what they do not hold", key.Scope)
	s.say("the key was shown once; from now on it is %s", key.Prefix)
	if err := s.holder.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/", nil, http.StatusForbidden, nil); err != nil {
		return err
	}
	s.say("checked: the key cannot read subscriptions, though its creator can (403)")
	return nil
}

func (s *stage) subscribe(ctx context.Context) error {
	var sub struct {
		created
		Secret string `json:"secret"`
		Status string `json:"status"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/", object{"url": s.receiver.url, "event_types": []string{"order.*"}}, http.StatusCreated, &sub); err != nil {
		return err
	}
	if err := expect("the status", sub.Status, "healthy"); err != nil {
		return err
	}
	s.subscription, s.secret = sub.ID, sub.Secret
	s.say("%s wants every \"order.*\"; its signing secret was shown once", s.receiver.url)
	return nil
}

func (s *stage) revoke(ctx context.Context) error {
	if err := s.owner.Call(ctx, "DELETE", "/api/v1/api-keys/"+s.keyID+"/", nil, http.StatusNoContent, nil); err != nil {
		return err
	}
	err := s.holder.Call(ctx, "POST", "/api/v1/events/", object{"type": "order.paid", "data": object{}}, http.StatusUnauthorized, nil)
	if err != nil {
		return err
	}
	s.say("checked: the very next request with it was refused (401)")
	return nil
}

func (s *stage) stop(ctx context.Context) error {
	if err := s.server.Stop(ctx); err != nil {
		return err
	}
	s.say("checked: told to stop, the server finished what was under way and ended with exit code 0")
	return nil
}

// expect compares a value with the expected one.
func expect(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q instead of %q", what, got, want)
	}
	return nil
}
