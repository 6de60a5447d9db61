package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

// otherCommands are words that people know from other programs, by the command here. Cobra suggests that command for these words.
var otherCommands = map[string]string{
	"delete": "remove rm del revoke destroy drop", "get": "show describe view info", "list": "ls all", "create": "new add make",
	"update": "set edit change modify patch rename", "publish": "send emit create trigger post push", "pause": "disable deactivate stop",
	"reactivate": "enable resume unpause activate start", "recover": "retry resend", "redeliver": "retry resend replay", "verify": "test check validate",
	"hold": "pause stop", "release": "resume start unpause", "subscriptions": "webhooks webhook hooks endpoints", "deliveries": "delivery attempts",
	"organizations": "orgs customers tenants", "serve": "start run up daemon", "doctor": "status check", "healthcheck": "ping", "keys": "apikeys api-keys",
	"show": "validate check get list print",
}

// otherPlaces say where a newcomer finds what a wrong command or flag asks for, if that is no command of the same group.
var otherPlaces = map[string]string{
	"token list":               `to list the access tokens of a user, run "keyhook users tokens USER"`,
	"token delete":             `to revoke an access token, run "keyhook users revoke-token USER TOKEN"`,
	"token revoke":             `to revoke an access token, run "keyhook users revoke-token USER TOKEN"`,
	"keys update":              `an API key never changes; run "keyhook keys create", and then "keyhook keys delete" for the old one`,
	"keys disable":             `an API key cannot be paused; to end it for good, run "keyhook keys delete ID"`,
	"subscriptions deliveries": `run "keyhook deliveries list SUBSCRIPTION"`,
	"subscriptions logs":       `run "keyhook deliveries list SUBSCRIPTION"`,
	"events deliveries":        `run "keyhook events get EVENT" or "keyhook events explain EVENT"`,
	"events replay":            `to send an event again, run "keyhook deliveries redeliver SUBSCRIPTION ATTEMPT" or "keyhook subscriptions replay SUBSCRIPTION"`,
	"users deactivate":         `run "keyhook users update USER --is-active=false"`,
	"users disable":            `run "keyhook users update USER --is-active=false"`,
	"users --role":             `a role belongs to a membership; run "keyhook organizations add-member ORGANIZATION USER --role NAME"`,
	"organizations plan":       `run "keyhook organizations update ORGANIZATION --plan NAME"`,
	"config set":               `write the setting into the file of --config, or set its variable or flag; "keyhook config init" creates a file`,
	"organizations --role":     `a role belongs to a membership; run "keyhook organizations add-member ORGANIZATION USER --role NAME"`,
	"subscriptions secret":     `Keyhook shows a secret only once; for a new one, run "keyhook subscriptions rotate-secret SUBSCRIPTION"`,
	"subscriptions --status":   `run "keyhook subscriptions pause", "keyhook subscriptions reactivate" or "keyhook subscriptions recover"`,
	"subscriptions --event":    `to send one event again, run "keyhook deliveries redeliver SUBSCRIPTION ATTEMPT"`,
	"backup --output":          `write: keyhook backup [FILE]`,
	"send":                     `run "keyhook events publish TYPE [JSON|-]"`,
	"migrate":                  `"keyhook serve" upgrades its database when it starts`,
	"logs":                     `"keyhook serve" writes its log to the standard error; "keyhook audit list" shows who changed what`,
	"login":                    `on the machine of the server, no login is needed; elsewhere, set KEYHOOK_URL and KEYHOOK_TOKEN`,
}

// commandPath returns the words of a command after "keyhook".
func commandPath(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// refuseUnknown is for groups: an argument of a group is a command that does not exist.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	wrong := fmt.Sprintf("unknown command %s", output.Quote(args[0]))
	if place := otherPlaces[strings.TrimSpace(commandPath(cmd)+" "+args[0])]; place != "" {
		return fmt.Errorf("%s; %s", wrong, place)
	}
	var names, near []string
	for _, c := range cmd.Commands() {
		switch {
		case !c.IsAvailableCommand():
			continue
		case slices.Contains(c.SuggestFor, args[0]), strings.HasPrefix(c.Name(), args[0]): // or the user began to type it
			near = append(near, c.Name())
		}
		names = append(names, c.Name())
	}
	if len(near) == 0 {
		cmd.SuggestionsMinimumDistance = min(2, (len(args[0])+1)/3) // two wrong letters of four are another word
		near = cmd.SuggestionsFor(args[0])
	}
	switch near = append(near, inGroups(cmd, args[0])...); {
	case len(near) > 0:
		return fmt.Errorf("%s; did you mean %s?", wrong, strings.Join(near, " or "))
	case cmd.HasParent():
		return fmt.Errorf("%s; the commands are %s", wrong, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s", wrong)
}

// inGroups returns the commands with a name in the groups below cmd, each after its group. It returns none for a name that many
// groups have, such as list.
func inGroups(cmd *cobra.Command, name string) (found []string) {
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.Name() == name {
				found = append(found, group.Name()+" "+name)
			}
		}
	}
	if len(found) > 2 {
		return nil
	}
	return found
}

// otherFlags are words that people know from other programs, by the flag here.
var otherFlags = map[string]string{
	"header": "headers-file", "H": "headers-file", "events": "event-types", "types": "event-types", "format": "json", "output": "json", "o": "json",
	"page": "cursor", "permissions": "scope", "force": "yes", "confirm": "yes", "url": "forward", "f": "config",
	"name": "external-id", "status": "outcome", "active": "paused", "grace-period": "grace",
}

// unknownFlag says which flag was probably meant, and what it is for; or else how the command is written.
func unknownFlag(cmd *cobra.Command, name string) error {
	for _, path := range []string{commandPath(cmd), commandPath(cmd.Parent())} {
		if place := otherPlaces[path+" "+dashes(name)]; place != "" {
			return fmt.Errorf("there is no flag %s; %s", dashes(name), place)
		}
	}
	var known, own []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			own = append(own, "--"+f.Name)
		}
	})
	takesArguments := strings.Contains(cmd.Use, " ")
	alike := slices.DeleteFunc(withWords(name, known), func(flag string) bool {
		return takesArguments && strings.Contains(flag, ".") // the argument is meant, and not a setting of the server
	})
	meant := cmd.Flags().Lookup(otherFlags[name])
	switch {
	case meant != nil:
	case len(alike) == 1:
		meant = cmd.Flags().Lookup(alike[0])
	case len(alike) == 0 || len(alike) > 3:
		meant = cmd.Flags().Lookup(config.Nearest(name, known))
	default:
		return fmt.Errorf("there is no flag %s; did you mean --%s?", dashes(name), strings.Join(alike, " or --"))
	}
	switch {
	case meant != nil:
		kind, usage := pflag.UnquoteUsage(meant)
		return fmt.Errorf("there is no flag %s; did you mean %s (%s)?", dashes(name), strings.TrimSpace("--"+meant.Name+" "+kind), usage)
	case takesArguments:
		return fmt.Errorf("there is no flag %s; write: %s", dashes(name), usageLine(cmd))
	}
	if len(own) <= 12 { // a longer list helps nobody
		return fmt.Errorf("there is no flag %s; the flags are %s", dashes(name), strings.Join(own, ", "))
	}
	return fmt.Errorf("there is no flag %s", dashes(name))
}

// withWords returns the flags that have all words of a name: external-id for id, and max-api-keys for max-keys.
func withWords(name string, flags []string) (found []string) {
	words := func(name string) []string {
		return strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	}
	for _, flag := range flags {
		has := words(flag)
		if !slices.ContainsFunc(words(name), func(word string) bool { return !slices.Contains(has, word) }) {
			found = append(found, flag)
		}
	}
	return found
}

// usageLine returns how a command is written, with the flags that it needs.
func usageLine(cmd *cobra.Command) string {
	line := cmd.Parent().CommandPath() + " " + cmd.Use
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if isRequired(f) {
			line += " --" + f.Name + " …"
		}
	})
	return line
}
