package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// noun is one sort of thing that the API keeps, with the commands about it. The nouns are data (see nouns.go and those
// beside it); what makes commands of them stands here, and what runs them in action.go.
type noun struct {
	name    string // "keys"
	short   string
	alone   *action // what the noun does without a verb; nil shows its help
	actions []action
}

// action is one command: what it is called, which request it becomes, and what of the answer is shown.
type action struct {
	use     string // the verb, and its arguments for the help: "rotate ID"
	short   string
	long    string // what short does not say; may be empty
	example string // without "keyhook", and without the noun

	method    string
	path      string // the arguments without a member fill its {}, in order
	arguments []argument
	query     []field
	body      []field
	asks      string // what must be answered with yes before the request is made; empty asks nothing
	fixed     object // members of the body that are always the same

	list   string // the columns of a table: the answer is a list, which comes in pages
	table  string // "member: columns": the member of the answer that is a table of its own
	id     string // the member that --quiet prints; empty is "id"
	secret string // the member that is shown this once
	done   string // what to say where the answer is empty; its %s are the arguments
	holds  string // "member=value": the command fails, after showing the answer, where this is not so
	fails  string // what that means
}

// argument is one word of the command line after the verb.
type argument struct {
	name     string // "ID"
	member   string // of the body; empty: it stands in the path
	kind     kind
	fallback string // what it is where it is left out; empty: it must be there
}

// field is a flag that becomes a member of the body or a parameter of the query.
type field struct {
	member   string // as the API calls it
	flag     string // empty: the member with dashes
	usage    string
	kind     kind
	required bool
}

func (f field) name() string {
	if f.flag != "" {
		return f.flag
	}
	return strings.ReplaceAll(f.member, "_", "-")
}

// given is a flag's value once it is read.
type given struct {
	kind
	text  string
	value any
	set   bool
}

// Set reads the value while the command line is read, so that a wrong one is refused before the command begins.
func (g *given) Set(text string) error {
	if g.several && g.set {
		text = g.text + "," + text
	}
	value, err := g.read(text)
	g.text, g.value, g.set = text, value, err == nil
	return err
}

func (g *given) String() string { return g.text }
func (g *given) Type() string   { return g.name }

// command returns the command of a noun, with those of its actions below it.
func (n noun) command() *cobra.Command {
	cmd := &cobra.Command{Use: n.name, Short: n.short}
	if n.alone != nil {
		cmd = n.alone.command("keyhook")
	}
	client.Flags(cmd)
	output.Flags(cmd)
	for _, a := range n.actions {
		cmd.AddCommand(a.command("keyhook " + n.name))
	}
	return cmd
}

func (a action) command(parent string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               a.use,
		Short:             a.short,
		Example:           "  " + parent + " " + strings.ReplaceAll(a.example, "\n", "\n  "+parent+" "),
		ValidArgsFunction: a.complete,
		Args:              a.check,
		RunE:              a.run,
	}
	if a.long != "" {
		cmd.Long = a.short + ".\n\n" + a.long
	}
	byMember := map[string][]string{}
	for _, f := range append(a.query, a.body...) {
		flag := cmd.Flags().VarPF(&given{kind: f.kind}, f.name(), "", f.usage)
		flag.NoOptDefVal = f.kind.bare
		if len(f.kind.choices) > 0 || f.kind.source != "" {
			must(cmd.RegisterFlagCompletionFunc(f.name(), f.kind.complete))
		}
		byMember[f.member] = append(byMember[f.member], f.name())
	}
	for _, names := range byMember {
		if len(names) > 1 {
			cmd.MarkFlagsMutuallyExclusive(names...)
		}
	}
	if a.list != "" {
		pageFlags(cmd)
	}
	if a.asks != "" {
		cmd.Flags().Bool(flagYes, false, "do not ask")
	}
	return cmd
}

// must is for errors that cobra documents for wrong programs only.
func must(err error) {
	if err != nil {
		panic("cli: " + err.Error())
	}
}

// check refuses arguments that make no sense, and flags that are missing, before the command begins.
func (a action) check(cmd *cobra.Command, args []string) error {
	for i, wanted := range a.arguments {
		switch {
		case i >= len(args) && wanted.fallback == "":
			return fmt.Errorf("%s is missing: write %s %s", wanted.name, cmd.Parent().CommandPath(), cmd.Use)
		case i >= len(args), wanted.kind.stdin && args[i] == "-":
			continue
		}
		if _, err := wanted.kind.read(args[i]); err != nil {
			return fmt.Errorf("%s: %w", wanted.name, err)
		}
	}
	if len(args) > len(a.arguments) {
		return fmt.Errorf("%s is one argument too many", output.Quote(args[len(a.arguments)]))
	}
	return a.missing(cmd)
}

// missing names the flags that must be there, all at once, and asks for at least one change of an update.
func (a action) missing(cmd *cobra.Command) error {
	var names, all []string
	changes := false
	for _, f := range a.body {
		all = append(all, "--"+f.name())
		if cmd.Flags().Changed(f.name()) {
			changes = true
		} else if f.required {
			names = append(names, "--"+f.name())
		}
	}
	for _, f := range a.query {
		if f.required && !cmd.Flags().Changed(f.name()) {
			names = append(names, "--"+f.name())
		}
	}
	switch {
	case len(names) == 1:
		return fmt.Errorf("%s is missing", names[0])
	case len(names) > 1:
		return fmt.Errorf("%s are missing", strings.Join(names, " and "))
	case a.method == "PATCH" && a.fixed == nil && !changes:
		return errors.New("nothing is to be changed: give " + strings.Join(all, ", "))
	}
	return nil
}
