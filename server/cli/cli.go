// Package cli owns the commands beside serve, and how a command line becomes output and an exit code. It does not know
// how the server is put together: main adds serve to what New returns.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/demo"
	"github.com/keyhook/keyhook/server/cli/doctor"

	"github.com/keyhook/keyhook/server/cli/bench"
	"github.com/keyhook/keyhook/server/cli/receive"
)

// Options are what the commands are given by main.
type Options struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Example []byte // config.example.yaml, for `config init`
	Schema  string // the text of schema.sql, for the commands that work on a stopped file
}

// New returns the root command with every command of this package below it. Run it with Run.
func New(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:   "keyhook",
		Short: "API keys and signed webhooks in one process and one file",
		Long: `API keys and signed webhooks in one process and one file.

"keyhook serve" is the server. The other commands talk to it: on the same machine over the socket beside its
database, without a token, as the operator "system"; to one elsewhere with --url and --token.`,
		Example: `  keyhook serve --dev
  keyhook subscriptions create --url http://127.0.0.1:9000/hook
  keyhook keys create --name backend --scope events:write
  keyhook events publish order.created '{"number": 1001}'`,
		Version:       readBuild().Version,
		SilenceUsage:  true, // a failure is one line, not a page
		SilenceErrors: true, // Run prints it
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	root.AddCommand(demo.New(), bench.New(), receive.NewListen(), receive.NewVerify(), newVersion(), newConfig(o.Example), newAPI(), newToken())
	root.AddCommand(newBackup(), newRestore(o.Schema), newRekey(o.Schema))
	root.AddCommand(doctor.New(doctor.Options{Schema: o.Schema, Listen: Listen}), doctor.NewHealthcheck())
	for _, n := range nouns {
		root.AddCommand(n.command())
	}
	return root
}

// The groups of the help.
const (
	groupServer  = "server"
	groupClients = "clients"
	groupOther   = "other"
)

var groups = []struct {
	id, title string
	commands  []string // beside those that are made of nouns
}{
	{groupServer, "Run a server:", []string{"serve", "config", "backup", "restore", "rekey", "healthcheck", "doctor"}},
	{groupClients, "Talk to a server:", []string{"api", "token"}},
	{groupOther, "See for yourself:", []string{"demo", "bench", "listen", "verify", "version"}},
}

// arrange puts the commands of root into their groups, those of main too. One that no group names stands below them.
func arrange(root *cobra.Command) {
	of := map[string]string{}
	for _, g := range groups {
		for _, name := range g.commands {
			of[name] = g.id
		}
	}
	for _, n := range nouns {
		of[n.name] = groupClients
	}
	for _, cmd := range root.Commands() {
		cmd.GroupID = of[cmd.Name()]
	}
}
