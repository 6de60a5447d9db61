package cli

import (
	"github.com/keyhook/keyhook/server/cli/client"
)

// ClientExamples returns the example of each command that is a client of the API, by the command's path.
func ClientExamples() map[string]string {
	examples := map[string]string{}
	root := New(Options{})
	for _, group := range root.Commands() {
		if group.PersistentFlags().Lookup(client.FlagToken) == nil {
			continue
		}
		if group.Runnable() {
			examples[group.CommandPath()] = group.Example
		}
		for _, cmd := range group.Commands() {
			examples[cmd.CommandPath()] = cmd.Example
		}
	}
	return examples
}
