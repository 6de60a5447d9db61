package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// noun is one type of resource of the API, with its commands. The nouns are tables, in the files nouns_*.go: a new command is a new
// action there. This file turns them into commands, action.go runs the commands, and show.go prints the responses.
type noun struct {
	name   string // "keys"
	id     string // the member that --quiet prints; empty means "id"
	short  string
	verbs  []action
	noVerb *action // the command without a verb; nil prints the help
}

// action is one command: its words, its request, and how to print the response.
type action struct {
	verb    string
	short   string
	long    string // more than short says; may be empty
	example string // the arguments and flags; one command per line

	request endpoint
	query   []field
	body    []field

	question question

	show view   // nil is a thing
	id   string // of the noun
}

// endpoint is a request of the API without the values of flags. Its zero value is no request.
type endpoint struct {
	method    string
	path      string         // arguments without a member replace each {}, in order
	arguments []argument     // of the command line
	members   map[string]any // members of the body that are always the same
}

func get(path string, a ...argument) endpoint   { return endpoint{"GET", path, a, nil} }
func post(path string, a ...argument) endpoint  { return endpoint{"POST", path, a, nil} }
func put(path string, a ...argument) endpoint   { return endpoint{"PUT", path, a, nil} }
func patch(path string, a ...argument) endpoint { return endpoint{"PATCH", path, a, nil} }
func del(path string, a ...argument) endpoint   { return endpoint{"DELETE", path, a, nil} }

// with returns the endpoint with a member of the body.
func (e endpoint) with(member string, value any) endpoint {
	e.members = map[string]any{member: value}
	return e
}

// question must be answered with yes before the request is sent. An empty text asks nothing.
type question struct {
	text       string // {member} is a member of the response to a dry run, which the command makes first
	atTerminal bool   // it is asked at a terminal only
}

// argument is one word of the command line after the verb.
type argument struct {
	name     string // "ID"
	member   string // the member of the body, or the parameter of the query of a GET; empty puts the argument into the path
	value    valueType
	optional bool
	fallback string // the value if an optional argument is left out; empty sends nothing
}

// use returns the argument as the help shows it.
func (a argument) use() string {
	switch {
	case a.optional && a.value.fromStdin:
		return "[" + a.name + "|-]"
	case a.optional:
		return "[" + a.name + "]"
	}
	return a.name
}

// field is a flag for a member of the body, or for a parameter of the query.
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

func valueOf(cmd *cobra.Command, f field) *flagValue {
	return cmd.Flags().Lookup(f.name()).Value.(*flagValue)
}

// command returns the command of a noun, with the commands of its actions below it.
func (n noun) command() *cobra.Command {
	cmd := &cobra.Command{Use: n.name, Short: n.short}
	if n.noVerb != nil {
		a := *n.noVerb
		a.id = n.id
		cmd = a.command("keyhook")
	}
	client.Flags(cmd)
	output.Flags(cmd)
	for _, a := range n.verbs {
		a.id = n.id
		cmd.AddCommand(a.command("keyhook " + n.name))
	}
	return cmd
}

// use returns the verb with its arguments: "rotate ID".
func (a action) use() string {
	words := []string{a.verb}
	for _, argument := range a.request.arguments {
		words = append(words, argument.use())
	}
	return strings.Join(words, " ")
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
	for _, f := range append(a.query, a.body...) {
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
			cmd.MarkFlagsMutuallyExclusive(names...)
		}
	}
	if l, isList := a.show.(list); isList && !l.whole {
		listFlags(cmd, l.hasCSV)
	}
	if a.question.text != "" {
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
	for i, text := range args[:min(len(args), len(a.request.arguments))] { // first, because a wrong one may explain a missing one
		wanted := a.request.arguments[i]
		if wanted.value.fromStdin && text == "-" {
			continue
		}
		if _, err := wanted.value.parse(text); err != nil {
			return wanted.value.wrong(wanted.name, text, err)
		}
	}
	return checkArguments(cmd, args)
}

// The lists of the API.
const (
	pathKeys          = "/api/v1/api-keys/"
	pathSubscriptions = "/api/v1/webhooks/subscriptions/"
	pathEvents        = "/api/v1/events/"
	pathEventTypes    = "/api/v1/event-types/"
	pathAudit         = "/api/v1/audit-events/"
	pathUsage         = "/api/v1/usage/"
	pathOrganizations = "/api/v1/organizations/"
	pathUsers         = "/api/v1/users/"
	pathRoles         = "/api/v1/roles/"
	pathPermissions   = "/api/v1/permissions/"
	pathPlans         = "/api/v1/plans/"
	pathQueue         = "/api/v1/queue/"
	pathClock         = "/api/v1/clock/"
)

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
