// Package leak owns the command leak-pattern: the rules by which secret scanners find the credentials of Keyhook. It knows no server:
// the form of a credential is in package access.
package leak

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/access"
)

// rule is the rule of one scanner. PATTERN stands for the regular expression, and PREFIX and TOKEN for the prefixes.
type rule struct{ scanner, text string }

var rules = []rule{
	{"gitleaks", `# gitleaks: add this to .gitleaks.toml. A new file also needs the two lines: [extend] and useDefault = true
[[rules]]
id = "keyhook-credential"
description = "API key or access token of Keyhook"
regex = '''\b(PATTERN)\b'''
keywords = ["PREFIX_", "TOKEN_"]
`},
	{"trufflehog", `# trufflehog: save this as trufflehog.yaml, and give --config trufflehog.yaml
detectors:
  - name: Keyhook
    keywords: [PREFIX_, TOKEN_]
    regex:
      credential: '\b(PATTERN)\b'
`},
	{"github", `# GitHub: in the settings, open Advanced Security, then Custom patterns, and fill in these fields
Pattern name:  Keyhook credential
Secret format: PATTERN
Before secret: \A|[^0-9A-Za-z_]
After secret:  \z|[^0-9A-Za-z_]
`},
}

// New returns the command. Flags, environment and file of serve tell the prefix of the keys.
func New() *cobra.Command {
	var scanners []string
	for _, r := range rules {
		scanners = append(scanners, r.scanner)
	}
	cmd := &cobra.Command{
		Use:   "leak-pattern [SCANNER]",
		Short: "Print the rules with which secret scanners find leaked keys",
		Long: `Print the rules with which secret scanners find leaked API keys and access tokens: one of ` + strings.Join(scanners, ", ") + `,
or all of them. Use the same flags, environment and file as for serve, because keys.prefix is part of the rules.

Whoever finds a credential can revoke it with POST /api/v1/auth/leaked/.`,
		Example:   "  keyhook leak-pattern gitleaks >>.gitleaks.toml",
		ValidArgs: scanners,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !slices.Contains(scanners, args[0]) {
				return output.UsageError{Err: fmt.Errorf("there is no rule for %s; give one of %s", output.Quote(args[0]), strings.Join(scanners, ", "))}
			}
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			var texts []string
			fill := strings.NewReplacer("PATTERN", access.Pattern(c.Keys.Prefix, access.TokenPrefix), "PREFIX", c.Keys.Prefix, "TOKEN", access.TokenPrefix)
			for _, r := range rules {
				if len(args) == 0 || args[0] == r.scanner {
					texts = append(texts, fill.Replace(r.text))
				}
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(texts, "\n"))
			return err
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}
