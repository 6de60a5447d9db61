package cli

import (
	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/cli/output"
)

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version and the build of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build.Read()
			if asJSON {
				return output.WriteJSON(cmd.OutOrStdout(), b)
			}
			t := output.Table{}
			t.Add("keyhook", b.Version)
			t.Add("revision", b.Revision)
			t.Add("go", b.Go+" "+b.Platform)
			t.Add("modernc.org/sqlite", b.SQLite)
			t.Add("modernc.org/libc", b.Libc)
			return t.Write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
