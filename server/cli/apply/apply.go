// Package apply owns the command `apply`: it reads a YAML file, asks the server what differs, prints that, asks the user, keeps the
// secrets of new subscriptions, and has the server make the changes. The server knows the rules about objects and their fields.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Options are what the user asks for.
type Options struct {
	File        string    // the file; "-" reads In
	In          io.Reader // the standard input
	DryRun      bool      // print the difference and change nothing
	Prune       bool      // also remove what an earlier apply created and the file no longer has
	SecretsFile string    // takes the secrets of new subscriptions; empty prints them

	Confirm func(question string) error // asks before anything is removed
}

const (
	maxFile  = 16 << 20 // the largest file that is read, in bytes
	partSize = 1000     // objects of a file that needs more changes than one request makes
)

type runner struct {
	Options
	client client.Client
	out    output.Printer
	name   string // of the file, for errors
	doc    *document
	isPart bool // earlier parts of the file were applied
}

// Run makes the server as the file says. The error is Problems if the file is wrong; then nothing was changed, unless Run has said that it
// applies the file in parts.
func Run(ctx context.Context, c client.Client, out output.Printer, o Options) error {
	text, err := output.ReadFile(o.In, o.File, maxFile)
	if err != nil {
		return output.UsageError{Err: fmt.Errorf("--file: %w", err)}
	}
	r := runner{Options: o, client: c, out: out, name: o.File}
	if o.File == "-" {
		r.name = "standard input"
	}
	if r.doc, err = parse(r.name, []byte(text)); err != nil {
		return err
	}
	r.readHeaders()
	if len(r.doc.problems) > 0 {
		return Problems{file: r.name, problems: r.doc.problems}
	}
	err = r.apply(ctx, r.doc.entries, o.Prune)
	if errors.Is(err, errTooMuch) && len(r.doc.entries) > 1 {
		return r.applyParts(ctx)
	}
	return err
}

// applyParts applies a file that needs too many changes for one request. Objects refer to earlier ones only, so each part can be compared
// when those before it are made. A part that is too much is halved.
func (r *runner) applyParts(ctx context.Context) error {
	r.out.Note("The file needs more changes than one request makes. It is applied in parts, so it is not all or nothing.")
	size := partSize
	for from := 0; from < len(r.doc.entries); {
		part := r.doc.entries[from:min(from+size, len(r.doc.entries))]
		err := r.apply(ctx, part, false)
		if errors.Is(err, errTooMuch) && len(part) > 1 {
			size = len(part) / 2
			continue
		}
		if err != nil {
			return fault.Advise(err, "%d of %d objects are as the file says; run the same command again to continue", from, len(r.doc.entries))
		}
		if r.DryRun {
			r.out.Note("The other %d objects may need these, so they are compared when these are made.", len(r.doc.entries)-len(part))
			return nil
		}
		from, r.isPart = from+len(part), true
	}
	if !r.Prune {
		return nil
	}
	return r.apply(ctx, r.doc.entries, true)
}

// apply makes the server as these objects say: it compares, asks, and makes the changes.
func (r *runner) apply(ctx context.Context, entries []*entry, prune bool) error {
	q := newRequest(entries, prune)
	d, err := r.send(ctx, q, true)
	if err != nil {
		return err
	}
	made, err := r.addSecrets(q, d) // also in a dry run, which so finds a secret_file that cannot be read
	if err != nil {
		return err
	}
	if err := d.print(r.out); err != nil || r.DryRun || len(d.Changes) == 0 {
		return err
	}
	question, removals := d.question()
	if q.removals = removals; question != "" {
		if err := r.Confirm(question); err != nil {
			return err
		}
	}
	return r.make(ctx, q, made)
}

// addSecrets adds the secrets of new subscriptions to a request, and returns those that it has made.
func (r *runner) addSecrets(q *request, d difference) (made []secretLine, err error) {
	for _, c := range d.Changes {
		e := q.entries[c.Path]
		if c.Action != create || c.Kind != "subscription" || e == nil {
			continue
		}
		secret, err := r.readSecret(e)
		if err != nil {
			r.doc.wrong(e.lines[secretFile], "%s: %v", secretFile, err)
		}
		if secret == "" {
			organization, _ := e.fields["organization"].(string)
			externalID, _ := e.fields["external_id"].(string)
			secret = webhook.NewSecret().Reveal()
			made = append(made, secretLine{organization, externalID, secret, c})
		}
		e.secret = secret
	}
	if len(r.doc.problems) > 0 {
		return nil, Problems{r.name, r.doc.problems, r.isPart}
	}
	return made, nil
}

// make saves the secrets and then has the server make the changes. So no secret is lost when the connection breaks, or when this process is
// killed. Without a file, it prints the secrets at the end.
func (r *runner) make(ctx context.Context, q *request, made []secretLine) (err error) {
	end := func([]secretLine) error { return nil }
	if len(made) > 0 && r.SecretsFile != "" {
		if end, err = saveSecrets(r.SecretsFile, made); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	began := time.Now()
	d, err := r.send(ctx, q, false)
	refused, isRefused := errors.AsType[*refusal](err)
	if isRefused || err == nil { // otherwise nobody knows what the server has created; another run may have created some
		made = slices.DeleteFunc(made, func(one secretLine) bool {
			return !slices.ContainsFunc(d.Changes, func(c change) bool { return c.Action == create && c.Path == one.change.Path })
		})
	}
	ended, printed := end(made), ""
	for _, one := range made {
		if r.SecretsFile == "" {
			printed += fmt.Sprintf("secret of %s: %s\n", output.Escape(one.change.Key), one.Secret)
		}
	}
	switch {
	case isRefused:
		return errors.Join(refused.error, ended)
	case err != nil && printed == "":
		return fault.Advise(err, "run the same command again; if the server made the changes nevertheless, it finds nothing to do")
	case err != nil:
		return fmt.Errorf("%w (if the server made the changes nevertheless, these secrets are in use)\n%s", err, printed)
	}
	if err := r.out.Write(printed); err != nil {
		return fmt.Errorf("%w (the subscriptions exist, with these secrets)\n%s", err, printed)
	}
	r.out.Note("Made %s in %s.", output.Count(len(d.Changes), "change", "changes"), time.Since(began).Round(time.Millisecond))
	if printed != "" {
		r.out.Note("Store the secrets now. They are not shown again.")
	} else if len(made) > 0 {
		r.out.Note("Wrote %s to %s.", output.Count(len(made), "secret", "secrets"), r.SecretsFile)
	}
	return ended
}
