package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// noun is one type of resource of the API, with its commands. The nouns are tables, in the files nouns*.go. This file turns
// them into commands, and action.go runs the commands.
type noun struct {
	name   string // "keys"
	short  string
	verbs  []action
	noVerb *action // the command without a verb; nil prints the help
}

// action is one command: its words, its request, and how to print the response.
type action struct {
	use     string // the verb and its arguments, for the help: "rotate ID"
	short   string
	long    string // more than short says; may be empty
	example string // without "keyhook" and the noun; one command per line

	method      string
	path        string // arguments without a member replace each {}, in order
	arguments   []argument
	query       []field
	body        []field
	fixedBody   map[string]any // members of the body that are always the same
	question    string         // the user must answer yes before the request is sent; empty asks nothing
	preview     string         // the path of a dry run before the request; its members replace {member} in the question
	previewBody map[string]any // the body of that dry run; nil is the body of the request
	atTerminal  bool           // the question is asked at a terminal only

	// note returns a remark after the response, about the preview if there is one; empty for none. Its commands name the
	// organization, unless that is empty.
	note func(found object, args []string, organization string) string

	// summary says in words what the response means. before is the thing at the path subject, as it was; nil if it could not be read.
	summary func(response, before object, isDryRun bool) string
	subject string

	columns   string // the response is a list, with these columns
	notes     string // members of each item, as lines below the table: a text and a command
	listsAll  bool   // the list takes --organization all
	table     string // "member: columns": this member of the response is a table of its own
	nested    string // these members of the response are objects; each of their members gets a line
	id        string // the member that --quiet prints; empty means "id"
	secret    string // the member with a secret, which is shown only once
	done      string // what to print for an empty response; each %s is an argument
	condition string // "member=value": without this member in the response, the command fails after printing
	failure   string // the error in that case

	organization string // what --organization says; set by run
}

// argument is one word of the command line after the verb.
type argument struct {
	name     string // "ID"
	member   string // the member of the body, or the parameter of the query of a GET; empty puts the argument into the path
	value    valueType
	fallback string // the value if the argument is left out; empty sends nothing
}

// field is a flag for a member of the body, or for a parameter of the query.
type field struct {
	member   string // as the API calls it
	flag     string // empty means the member, with dashes
	usage    string
	value    valueType
	required bool
	fallback string // the parameter of the query without the flag; empty sends nothing
	beside   string // with this flag, there is no fallback
}

func (f field) name() string {
	if f.flag != "" {
		return f.flag
	}
	return strings.ReplaceAll(f.member, "_", "-")
}

// flagValue is the value of the flag of a field.
type flagValue struct {
	valueType
	text  string
	value any // for the API
	isSet bool
}

// Set parses the value, so that a wrong one is refused before the command begins.
func (v *flagValue) Set(text string) error {
	if v.isSet && !v.repeatable {
		return errors.New("the flag is there already; give it once")
	}
	if v.repeatable && v.isSet {
		text = v.text + "," + text
	}
	if v.inFile { // which is read when the command runs
		v.text, v.isSet = text, true
		return nil
	}
	value, err := v.parse(text)
	v.text, v.value, v.isSet = text, value, err == nil
	return err
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.name }

func valueOf(cmd *cobra.Command, f field) *flagValue {
	return cmd.Flags().Lookup(f.name()).Value.(*flagValue)
}

// command returns the command of a noun, with the commands of its actions below it.
func (n noun) command() *cobra.Command {
	cmd := &cobra.Command{Use: n.name, Short: n.short}
	if n.noVerb != nil {
		cmd = n.noVerb.command("keyhook")
	}
	client.Flags(cmd)
	output.Flags(cmd)
	for _, a := range n.verbs {
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
		flag := cmd.Flags().VarPF(&flagValue{valueType: f.value}, f.name(), "", f.usage)
		flag.NoOptDefVal = f.value.whenBare
		if f.required {
			must(cmd.MarkFlagRequired(f.name()))
		}
		if len(f.value.choices) > 0 || f.value.listPath != "" {
			must(cmd.RegisterFlagCompletionFunc(f.name(), f.value.complete))
		}
		byMember[f.member] = append(byMember[f.member], f.name())
	}
	for _, names := range byMember {
		if len(names) > 1 {
			cmd.MarkFlagsMutuallyExclusive(names...)
		}
	}
	if a.columns != "" {
		listFlags(cmd)
	}
	if a.question != "" {
		output.YesFlag(cmd)
	}
	return cmd
}

// must is for errors that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic("cli: " + err.Error())
	}
}

// check refuses wrong arguments and missing flags before the command begins.
func (a action) check(cmd *cobra.Command, args []string) error {
	if err := checkArguments(cmd, args); err != nil {
		return err
	}
	for i, text := range args {
		wanted := a.arguments[i]
		if wanted.value.fromStdin && text == "-" {
			continue
		}
		if _, err := wanted.value.parse(text); err != nil {
			return wanted.value.wrong(wanted.name, text, err)
		}
	}
	return a.checkFlags(cmd)
}

// checkFlags names all missing flags at once, and refuses an update without a change.
func (a action) checkFlags(cmd *cobra.Command) error {
	var missing, all []string
	for _, f := range append(a.query, a.body...) {
		if f.required && !cmd.Flags().Changed(f.name()) {
			missing = append(missing, "--"+f.name())
		}
	}
	hasChange := false
	for _, f := range a.body {
		all = append(all, "--"+f.name())
		hasChange = hasChange || cmd.Flags().Changed(f.name())
	}
	switch {
	case len(missing) == 1:
		return fmt.Errorf("%s is missing; write: %s", missing[0], usageLine(cmd))
	case len(missing) > 1:
		return fmt.Errorf("%s are missing; write: %s", strings.Join(missing, " and "), usageLine(cmd))
	case a.method == "PATCH" && a.fixedBody == nil && !hasChange:
		return errors.New("nothing to change; give at least one of " + strings.Join(all, ", "))
	}
	return nil
}
