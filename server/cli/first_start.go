package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage/access"
)

// FirstStart has the credentials of the first operator.
type FirstStart struct {
	Token access.Credential
	Link  access.Credential // signs in to the console once; zero if Token is a setting
	Life  time.Duration     // of both; 0 is without end
}

// NewFirstStart returns new credentials, or the setting bootstrap.token.
func NewFirstStart(setting config.Bootstrap) FirstStart {
	if setting.Token.IsZero() {
		return FirstStart{access.Mint(access.TokenPrefix), access.Mint(access.LinkPrefix), 24 * time.Hour}
	}
	token, _ := access.Opaque(setting.Token.Reveal()) // config has checked its form
	return FirstStart{Token: token}
}

// Welcome prints the first steps for the first operator. url is where people reach the server. A token from the settings is not
// printed: the operator knows it.
func (f FirstStart) Welcome(out io.Writer, c config.Config, url string) {
	fmt.Fprintf(out, `
Welcome to Keyhook. The database is %s. It has the organization "Default" and the operator "admin".

  address  %s
`, c.Storage.Path, url)
	if f.Link.IsZero() {
		if c.Console.Enabled {
			fmt.Fprintf(out, "  console  %s\n", console.URL(url))
		}
		fmt.Fprint(out, "  token    the setting bootstrap.token\n\n")
		return
	}
	token := f.Token.Reveal()
	fmt.Fprintf(out, "  token    %s  (valid for %.0f hours; only its hash is stored)\n\n", token, f.Life.Hours())
	if c.Console.Enabled {
		fmt.Fprintf(out, "Console: %s\n(The link works once, within %.0f hours.)\n\n", console.SignInURL(url, f.Link.Reveal()), f.Life.Hours())
	}
	fmt.Fprintf(out, `Try it:

  curl -H 'Authorization: Bearer %s' %s/api/v1/whoami/

Create a token that does not expire. Run this command on this machine, in the directory of the database:

  keyhook token create --name NAME

`, token, url)
}
