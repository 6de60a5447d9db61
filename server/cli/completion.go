package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
)

// complete offers the possible values of the next argument.
func (a action) complete(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= len(a.request.arguments) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.request.arguments[len(args)].value.complete(cmd, args, toComplete)
}

// complete offers the possible values: the choices of the type, or the newest items of its list on the server.
func (v valueType) complete(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if v.listPath == "" {
		return v.choices, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // a shell shows no errors here
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // after somebody has pressed the tab key
	defer cancel()
	var found client.Page
	if body, err := c.Do(ctx, "GET", v.listPath, nil); err == nil { // without a limit, which not every list takes
		_ = json.Unmarshal(body, &found) // what is no list offers nothing
	}
	var offered []cobra.Completion
	for _, item := range found.Data {
		if o, err := parseObject(item); err == nil {
			offered = append(offered, candidate(o))
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// candidate returns the value for an item, with a description for people.
func candidate(o object) cobra.Completion {
	word := ""
	for _, name := range []string{"id", "key", "name", "type"} {
		if word = o.text(name); word != absent {
			break
		}
	}
	for _, name := range []string{"email", "name", "url", "description", "type"} {
		if about := o.text(name); about != absent && about != word {
			return cobra.CompletionWithDesc(word, about)
		}
	}
	return word
}
