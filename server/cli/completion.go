package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
)

// completionLimit bounds what somebody waits for after pressing the tab key.
const completionLimit = 2 * time.Second

// complete offers what an argument can be.
func (a action) complete(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= len(a.arguments) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.arguments[len(args)].kind.complete(cmd, args, begun)
}

// complete offers the words of a kind: those it has, or the ids of the newest things that the server has.
func (k kind) complete(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if k.source == "" {
		return k.choices, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // there is nowhere to say why
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	found, err := c.List(ctx, k.source, "", client.PageItems)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offered []cobra.Completion
	for _, item := range found.Data {
		r, err := parseObject(item)
		if err != nil {
			continue
		}
		offered = append(offered, candidate(r))
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// candidate is what names an item, with the first thing that tells people which it is.
func candidate(r record) cobra.Completion {
	word := ""
	for _, name := range []string{"id", "key", "name"} {
		if word = r.text(name); word != none {
			break
		}
	}
	for _, name := range []string{"email", "name", "url", "description", "type"} {
		if about := r.text(name); about != none && about != word {
			return cobra.CompletionWithDesc(word, about)
		}
	}
	return word
}
