package cli

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// noun is one type of resource of the API, with its commands. The nouns are tables, in the files nouns_*.go: a new command is a new
// action there. This file turns them into commands, action.go runs the commands, and show.go prints the responses.
type noun struct {
	name    string // "keys"
	path    string // of its list, where the paths of the actions begin; empty means the name behind /api/v1/
	item    string // the argument for {} in these paths: "ID"
	example string // of that argument, for actions without an example of their own
	id      string // the member that --quiet prints; empty means "id"
	short   string
	verbs   []action // the first one may be the command without a verb, if it has the name of the noun
}

// action is one command: its words, its request, and how to print the response.
type action struct {
	verb    string
	short   string
	long    string // more than short says; may be empty
	example string // the arguments and flags; one command per line

	method     string         // with path, the request; empty means the usual request of the verb
	path       string         // below that of the noun, unless it begins with a slash; {USER} is an argument, and {} is the item
	arguments  []argument     // of the command line, behind those in the path
	members    map[string]any // members of the body that are always the same
	fields     []field
	question   string // before the request; {member} is a member of the response to a dry run, which comes first
	atTerminal bool   // the question is asked at a terminal only

	show view   // nil is a thing
	id   string // of the noun
}

// usualRequests are the method and path of the verbs that most nouns have.
var usualRequests = map[string][2]string{
	"list": {"GET", ""}, "get": {"GET", "{}/"}, "create": {"POST", ""}, "update": {"PATCH", "{}/"}, "delete": {"DELETE", "{}/"},
}

// argument is one word of the command line after the verb.
type argument struct {
	name     string // "ID"
	member   string // the member of the body, or the parameter of the query of a GET; empty: it is in the path
	value    valueType
	optional bool
	fallback string // the value if an optional argument is left out; empty sends nothing
}

// field is a flag for a member of the body, or for a parameter of the query of a GET.
type field struct {
	member   string // as the API calls it
	flag     string // empty means the member, with dashes
	usage    string
	value    valueType
	required bool
	fallback string // the value without the flag; empty sends nothing
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
	if v.repeatable && v.isSet {
		text = v.text + cmp.Or(v.separator, ",") + text
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

// command returns the command of a noun, with the commands of its actions below it.
func (n noun) command() *cobra.Command {
	cmd, verbs := &cobra.Command{Use: n.name, Short: n.short}, n.verbs
	if verbs[0].verb == n.name {
		cmd, verbs = n.complete(verbs[0]).command("keyhook"), verbs[1:]
	}
	client.Flags(cmd)
	output.Flags(cmd)
	for _, a := range verbs {
		cmd.AddCommand(n.complete(a).command("keyhook " + n.name))
	}
	return cmd
}

var pathArgument = regexp.MustCompile(`\{([A-Z-]+)\}`)

// complete returns an action with what the noun says about it.
func (n noun) complete(a action) action {
	a.id = n.id
	if usual := usualRequests[a.verb]; a.method == "" {
		a.method, a.path = usual[0], usual[1]
	}
	if strings.HasPrefix(a.path, "{}") {
		a.example = cmp.Or(a.example, n.example)
	}
	if !strings.HasPrefix(a.path, "/") {
		a.path = cmp.Or(n.path, "/api/v1/"+n.name+"/") + strings.Replace(a.path, "{}", "{"+n.item+"}", 1)
	}
	var inPath []argument
	for _, match := range pathArgument.FindAllStringSubmatch(a.path, -1) {
		inPath = append(inPath, argument{name: match[1], value: id})
	}
	a.arguments = append(inPath, a.arguments...)
	return a
}

// use returns the verb with its arguments: "rotate ID", "publish TYPE [JSON|-]".
func (a action) use() (text string) {
	text = a.verb
	for _, argument := range a.arguments {
		word := argument.name
		if argument.optional && argument.value.fromStdin {
			word += "|-"
		}
		if argument.optional {
			word = "[" + word + "]"
		}
		text += " " + word
	}
	return text
}

func (a action) command(parent string) *cobra.Command {
	if a.show == nil {
		a.show = thing{}
	}
	cmd := &cobra.Command{
		Use:               a.use(),
		Short:             a.short,
		Example:           examples(parent+" "+a.verb, a.example),
		ValidArgsFunction: a.complete,
		Args:              a.check,
		RunE:              a.run,
	}
	if a.long != "" {
		cmd.Long = a.short + ".\n\n" + a.long
	}
	byMember := map[string][]string{}
	for _, f := range a.fields {
		flag := cmd.Flags().VarPF(&flagValue{valueType: f.value}, f.name(), "", f.usage)
		flag.NoOptDefVal = f.value.whenBare
		if f.required {
			must(cmd.MarkFlagRequired(f.name()))
		}
		if len(f.value.choices) > 0 {
			must(cmd.RegisterFlagCompletionFunc(f.name(), cobra.FixedCompletions(f.value.choices, cobra.ShellCompDirectiveNoFileComp)))
		}
		byMember[f.member] = append(byMember[f.member], f.name())
	}
	for _, names := range byMember {
		if len(names) > 1 {
			output.Exclusive(cmd, names...)
		}
	}
	if l, isList := a.show.(list); isList && !l.whole {
		listFlags(cmd, l.hasCSV)
	}
	if a.question != "" {
		output.YesFlag(cmd)
	}
	return cmd
}

// examples returns the lines of examples with a command before each.
func examples(command, arguments string) string {
	lines := strings.Split(arguments, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight("  "+command+" "+line, " ")
	}
	return strings.Join(lines, "\n")
}

// must is for errors that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic("cli: " + err.Error())
	}
}

// check refuses wrong arguments before the command begins.
func (a action) check(cmd *cobra.Command, args []string) error {
	for i, text := range args[:min(len(args), len(a.arguments))] { // first, because a wrong one may explain a missing one
		wanted := a.arguments[i]
		if wanted.value.fromStdin && text == "-" {
			continue
		}
		if _, err := wanted.value.parse(text); err != nil {
			return wanted.value.wrong(wanted.name, text, err)
		}
	}
	return checkArguments(cmd, args)
}

// nouns are all nouns, in the order of the help.
var nouns = []noun{
	keyNoun, subscriptionNoun, deliveryNoun, eventNoun, eventTypeNoun, organizationNoun, userNoun, roleNoun, permissionNoun, planNoun, auditNoun, usageNoun, queueNoun, clockNoun,
}

// expiryFields say when a credential expires.
var expiryFields = []field{
	{member: "expires_at", usage: "time of expiry (default: never)", value: timestamp},
	{member: "expires_at", flag: "expires-in", usage: "time until expiry, such as 12h or 30d", value: fromNow},
}

// periodFields select a part of a log.
var periodFields = []field{
	{member: "since", usage: "only from this time; 24h means 24 hours ago", value: timeOrAgo},
	{member: "until", usage: "only before this time; 1h means one hour ago", value: timeOrAgo},
}
