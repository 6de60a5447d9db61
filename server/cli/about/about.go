// Package about owns the commands that describe this binary. It does not know the API.
package about

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/cli/output"
)

// NewVersion returns the command version.
func NewVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version and the build of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build.Read()
			t := output.Table{}
			t.Add("keyhook", b.Version)
			t.Add("commit", b.Commit)
			t.Add("date", b.Date)
			t.Add("go", b.Go+" "+b.Platform)
			t.Add("sqlite", b.SQLite)
			t.Add("modernc.org/sqlite", b.Driver)
			t.Add("modernc.org/libc", b.Libc)
			return t.Write(cmd.OutOrStdout())
		},
	}
}

// NewLicenses returns the command licenses.
func NewLicenses() *cobra.Command {
	return &cobra.Command{
		Use:   "licenses",
		Short: "Show the licences of the libraries in this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), build.Licenses)
			return err
		},
	}
}
