package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
)

// The flags by which every client says where the server is and who asks.
const (
	flagURL          = "url"
	flagToken        = "token"
	flagOrganization = "organization"
	envURL           = "KEYHOOK_URL"
	envToken         = "KEYHOOK_TOKEN"
)

// connectable gives cmd, and all below it, the flags of a client.
func connectable(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	config.DatabaseFlags(flags)
	flags.String(flagURL, "", "the `address` of a server elsewhere (or "+envURL+"), with --"+flagToken+"; else the one on this machine")
	flags.String(flagToken, "", "access `token` or API key to come with (or "+envToken+", which others on this machine cannot see)")
	flags.String(flagOrganization, "", "act in the organization with this `id`")
}

// connect returns the client that the flags and the environment ask for: of the server that owns the database, over its
// local socket, or of one elsewhere. It does not connect yet.
func connect(cmd *cobra.Command) (client, error) {
	c := client{organization: text(cmd, flagOrganization)}
	if c.organization != "" {
		if _, err := idOf(organizationIDs).read(c.organization); err != nil {
			return c, output.UsageError{Err: fmt.Errorf("--%s: %w", flagOrganization, err)}
		}
	}
	address, token := cmp.Or(serverURL(cmd), os.Getenv(envURL)), cmp.Or(text(cmd, flagToken), os.Getenv(envToken))
	switch {
	case address == "" && token == "":
		return local(cmd, c)
	case token == "":
		return c, output.UsageError{Err: fmt.Errorf("there is a URL and no token: give --%s or set %s, or unset %s for the server on this machine", flagToken, envToken, envURL)}
	case address == "":
		return c, output.UsageError{Err: fmt.Errorf("there is a token and no URL: give --%s or set %s, or unset %s for the server on this machine", flagURL, envURL, envToken)}
	}
	return remote(c, address, token)
}

// serverURL returns what --url says of the server. Commands about things that have a URL of their own, as the API calls it,
// mean that by it; they are told of the server by the environment.
func serverURL(cmd *cobra.Command) string {
	if _, own := cmd.Flags().Lookup(flagURL).Value.(*given); own {
		return ""
	}
	return text(cmd, flagURL)
}

// local is for the server that owns the database which the settings name, as serve would find it.
func local(cmd *cobra.Command, c client) (client, error) {
	settings, err := config.Load(cmd.Flags())
	if err != nil {
		return c, err
	}
	path, err := socket.Path(settings.Storage.Path)
	if err != nil {
		return c, err
	}
	c.base = "http://local" // names nothing: the transport knows where to go
	c.transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, path)
	}}
	c.explain = func(err error) error { return absent(err, settings.Storage.Path, path) }
	return c, nil
}

// remote is for a server at a URL.
func remote(c client, address, token string) (client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return c, output.UsageError{Err: fmt.Errorf("%s is no URL of a server: write one like https://keys.example.com", output.Quote(address))}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return c, output.UsageError{Err: errors.New("the URL of a server has no user, query or fragment: write one like https://keys.example.com")}
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return c, output.UsageError{Err: errors.New("the token holds a space or another character that no token has: was it copied in full, and alone?")}
	}
	c.base = strings.TrimSuffix(address, "/")
	c.authorization = authorization(token)
	c.explain = func(err error) error { return unreachable(err, c.base) }
	return c, nil
}

// minted is the form of API keys, whatever their prefix is set to, and of our access tokens.
var minted = regexp.MustCompile(`^([a-z][a-z0-9]{0,15})_[0-9A-Za-z]{36}$`)

// authorization is the header for a credential.
func authorization(credential string) string {
	form := minted.FindStringSubmatch(credential)
	if strings.HasPrefix(credential, "svc_") || form != nil && form[1] != "kat" {
		return "ApiKey " + credential
	}
	return "Bearer " + credential
}

// text returns what a flag is set to.
func text(cmd *cobra.Command, name string) string {
	value, err := cmd.Flags().GetString(name)
	if err != nil {
		panic("cli: " + err.Error()) // the flag is not defined
	}
	return value
}
