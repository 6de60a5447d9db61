// Package cli owns the commands beside serve, and how a command line becomes output and an exit code. It does not know
// how the server is put together: main adds serve to what New returns.
package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// Options are what the commands are given by main.
type Options struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Example []byte // config.example.yaml, for `config init`
}

// New returns the root command with every command of this package below it. Run it with Run.
func New(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:           "keyhook",
		Short:         "API keys and signed webhooks in one process and one file",
		Version:       readBuild().Version,
		SilenceUsage:  true, // a failure is one line, not a page
		SilenceErrors: true, // Run prints it
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.AddCommand(newDemo(), newBench(), newCounterpart(), newVersion(), newConfig(o.Example))
	return root
}
