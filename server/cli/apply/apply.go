// Package apply owns the command `apply`: it reads a file of plans, permissions, roles, organizations, users, members and
// subscriptions, compares the file with a server, and changes the server. It knows the server only by its API.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
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

// maxFile is the largest file that is read, in bytes.
const maxFile = 16 << 20

// Run makes the server as the file says. The error is Problems if the file is wrong; then nothing was changed.
func Run(ctx context.Context, c client.Client, out output.Printer, o Options) error {
	text, err := readFile(o)
	if err != nil {
		return err
	}
	name, directory := o.File, filepath.Dir(o.File)
	if o.File == "-" {
		name, directory = "standard input", "."
	}
	doc, err := parse(name, text)
	if err != nil {
		return err
	}
	if err := checkPermissions(ctx, c, doc, o); err != nil {
		return err
	}
	now, err := readServer(ctx, c, doc, o.Prune)
	if err != nil {
		return err
	}
	wanted := doc.check(now, directory, o)
	if len(doc.problems) > 0 {
		return Problems{name, doc.problems}
	}
	p := compare(wanted, now, o.Prune)
	if err := p.preview(ctx, c); err != nil {
		return err
	}
	if err := p.print(out); err != nil || o.DryRun || len(p.changes) == 0 {
		return err
	}
	if question := p.question(); question != "" {
		if err := o.Confirm(question); err != nil {
			return err
		}
	}
	sink := &secrets{out: out}
	if p.makesSecrets() {
		if sink, err = openSecrets(o.SecretsFile, out); err != nil {
			return err
		}
	}
	c.Applying = true
	r := runner{client: c, server: now, out: out, file: name, secrets: sink}
	return errors.Join(r.run(ctx, p.changes), sink.close())
}

func readFile(o Options) (text []byte, err error) {
	from := o.In
	if o.File != "-" {
		file, err := os.Open(o.File)
		if err != nil {
			return nil, fault.Advise(fmt.Errorf("cannot read the file: %w", err), "check the path and its permissions")
		}
		defer file.Close()
		from = file
	}
	text, err = io.ReadAll(io.LimitReader(from, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the file: %w", err)
	case len(text) > maxFile:
		return nil, fault.Advise(errors.New("the file is larger than 16 MiB"), "split the work into several runs without --prune")
	}
	return text, nil
}
