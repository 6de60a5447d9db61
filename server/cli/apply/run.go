package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// runner makes the changes.
type runner struct {
	client  client.Client
	server  *server
	out     output.Printer
	file    string // for errors
	secrets *secrets
	kept    []string // what could not be removed, and why
}

// run makes all changes, one after another, and stops at the first one that fails. A removal that the server refuses does not stop
// it: the others do not depend on it.
func (r *runner) run(ctx context.Context, changes []change) error {
	began := time.Now()
	done := 0
	for _, c := range changes {
		var err error
		switch c.action {
		case create:
			err = r.create(ctx, c)
		case update:
			err = r.update(ctx, c)
		default:
			err = r.remove(ctx, c)
		}
		if err != nil {
			return fault.Advise(fmt.Errorf("%s%s: %w", r.place(c), c.title(), err),
				"%d of %d changes are made; run the same command again to continue", done, len(changes))
		}
		done++
	}
	if len(r.kept) > 0 {
		var text strings.Builder
		for _, line := range r.kept {
			text.WriteString("\n  " + line)
		}
		return fmt.Errorf("%s could not be removed:%s", output.Count(len(r.kept), "object", "objects"), text.String())
	}
	r.out.Note("Made %s in %s.", output.Count(done, "change", "changes"), time.Since(began).Round(time.Millisecond))
	return nil
}

// place returns the place of a change in the file, if it has one.
func (r *runner) place(c change) string {
	if c.wanted == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", r.file, c.wanted.line)
}

// create creates an object. Its names are unique on the server, so a repeated run makes nothing twice.
func (r *runner) create(ctx context.Context, c change) error {
	switch c.kind {
	case members:
		return r.setMember(ctx, c)
	case subscriptions:
		return r.createSubscription(ctx, c)
	}
	var made map[string]any
	if err := r.call(ctx, r.client, "POST", c.kind.path, c.fields, &made); err != nil {
		return err
	}
	if c.kind == organizations || c.kind == users { // members and subscriptions need the id
		o := &object{kind: c.kind, name: c.name, fields: made}
		o.key = o.text("id")
		r.server.objects[c.kind][c.name] = o
	}
	return nil
}

func (r *runner) update(ctx context.Context, c change) error {
	switch c.kind {
	case members:
		return r.setMember(ctx, c)
	case subscriptions:
		return r.call(ctx, r.actingIn(c), "PATCH", c.kind.path+url.PathEscape(c.object.key)+"/", c.fields, nil)
	}
	return r.call(ctx, r.client, "PATCH", c.kind.path+url.PathEscape(c.object.key)+"/", c.fields, nil)
}

func (r *runner) setMember(ctx context.Context, c change) error {
	path := organizations.path + url.PathEscape(c.wanted.text("organization")) + "/members/" + url.PathEscape(c.wanted.text("user")) + "/"
	return r.call(ctx, r.client, "PUT", path, map[string]any{"role": c.wanted.text("role")}, nil)
}

// actingIn returns the client for the organization of a subscription.
func (r *runner) actingIn(c change) client.Client {
	acting := r.client
	if c.object != nil {
		acting.Organization = c.object.text("organization_id")
	} else {
		acting.Organization = r.server.find(organizations, c.wanted.text("organization")).key
	}
	return acting
}

// createSubscription saves the secret before it creates the subscription with it. So the secret is not lost when the connection
// breaks, or when this process is killed.
func (r *runner) createSubscription(ctx context.Context, c change) error {
	delete(c.fields, "organization")
	secret := c.wanted.secret
	isOurs := secret == ""
	if isOurs {
		secret = webhook.NewSecret().Reveal()
		if err := r.secrets.save(c.wanted, secret); err != nil {
			return err
		}
	}
	c.fields["secret"] = secret
	err := r.call(ctx, r.actingIn(c), "POST", c.kind.path, c.fields, nil)
	if !isOurs {
		return err
	}
	if refused(err) {
		return r.secrets.takeBack(err)
	}
	return r.secrets.confirm(c.wanted, secret, err)
}

// remove removes an object. If the server refuses because something depends on the object, the object stays, and the run goes on.
func (r *runner) remove(ctx context.Context, c change) error {
	var err error
	switch c.kind {
	case members:
		err = r.call(ctx, r.client, "DELETE", memberPath(c.object), nil, nil)
	case subscriptions:
		err = r.call(ctx, r.actingIn(c), "DELETE", c.kind.path+c.object.key+"/", nil, nil)
	default:
		err = r.call(ctx, r.client, "DELETE", c.kind.path+url.PathEscape(c.object.key)+"/", nil, nil)
		if c.kind == organizations && statusOf(err) == http.StatusConflict { // it is not empty
			err = r.call(ctx, r.client, "POST", c.kind.path+url.PathEscape(c.object.key)+"/close/", nil, nil)
		}
	}
	switch statusOf(err) {
	case http.StatusNotFound: // somebody else removed it
		return nil
	case http.StatusConflict:
		r.kept = append(r.kept, fmt.Sprintf("%s: %v; to keep it for good, run: keyhook api DELETE applied/%s/%s",
			c.title(), err, c.kind.name, url.PathEscape(c.object.key)))
		return nil
	}
	return err
}

// statusOf returns the status of a response that is no success; 0 for any other error, and for none.
func statusOf(err error) int {
	if refusal, isAnswer := errors.AsType[*answer](err); isAnswer {
		return refusal.status
	}
	return 0
}

// answer is a response that is no success.
type answer struct {
	status int
	error
}

// call makes one request.
func (r *runner) call(ctx context.Context, c client.Client, method, path string, body map[string]any, result any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := c.Send(ctx, method, path, text)
	if err != nil {
		return err
	}
	if !got.OK() {
		return &answer{got.Status, c.Refusal(got)}
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(got.Body, result)
}

// memberPath returns the path of a member of the server.
func memberPath(o *object) string {
	organization, user, _ := strings.Cut(o.key, "/")
	return organizations.path + organization + "/members/" + user + "/"
}
