package client

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The flags and variables that name the server, the credential and the organization.
const (
	FlagURL          = "url"
	FlagToken        = "token"
	FlagOrganization = "organization"
	EnvURL           = "KEYHOOK_URL"
	EnvToken         = "KEYHOOK_TOKEN"
)

// Flags gives cmd, and all commands below it, the flags that Connect reads.
func Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	config.DatabaseFlags(flags)
	flags.String(FlagURL, "", "`URL` of a server on another machine (or "+EnvURL+"); needs --"+FlagToken)
	flags.String(FlagToken, "", "access `token` or API key (or "+EnvToken+", which is safer: ps shows flags)")
	flags.String(FlagOrganization, "", "act in the organization with this `id` or external id; the lists of keys, subscriptions, events, audit events and usage also take all")
}

// Connect returns the client that the flags and the environment ask for: for the server that owns the database, over its
// local socket, or for a server at a URL. Connect does not make the connection yet.
func Connect(cmd *cobra.Command) (Client, error) {
	flags := cmd.Flags()
	c := Client{Organization: flags.Lookup(FlagOrganization).Value.String()}
	address := os.Getenv(EnvURL)
	if u := flags.Lookup(FlagURL).Value; u.Type() == "string" { // some commands have a --url of another type, which is a field of the API
		address = cmp.Or(u.String(), address)
	}
	token := cmp.Or(flags.Lookup(FlagToken).Value.String(), os.Getenv(EnvToken))
	switch {
	case address == "" && token == "":
		return local(cmd, c)
	case token == "":
		return c, usage("a URL needs a token; give --%s, or set %s; for the server on this machine, unset %s", FlagToken, EnvToken, EnvURL)
	case address == "":
		return c, usage("a token needs a URL; give --%s, or set %s; for the server on this machine, unset %s", FlagURL, EnvURL, EnvToken)
	}
	return c.At(address, token)
}

func usage(format string, args ...any) error {
	return output.UsageError{Err: fmt.Errorf(format, args...)}
}

// local returns the client for the server that owns the database of the settings.
func local(cmd *cobra.Command, c Client) (Client, error) {
	settings, err := config.Load(cmd.Flags())
	if err != nil {
		return c, err
	}
	path, err := socket.Path(settings.Storage.Path)
	if err != nil {
		return c, err
	}
	c.Base = "http://local" // a name for messages; the transport connects to the socket
	c.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, path)
	}}
	c.advise = func(err error) error { return adviseLocal(err, settings.Storage.Path, path) }
	return c, nil
}

// At returns the client for a server at a URL.
func (c Client) At(address, token string) (Client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return c, usage("the URL of a server must be such as https://keys.example.com, without a user, a query and a fragment")
	case !access.IsVisible(token):
		return c, usage("the token contains a space or another wrong character; copy the token again")
	}
	c.Base = strings.TrimSuffix(address, "/")
	c.Authorization = authorization(token)
	c.advise = func(err error) error {
		return fault.Advise(fmt.Errorf("cannot reach %s: %w", c.Base, err), "check --%s, and whether the server is running", FlagURL)
	}
	return c, nil
}

// authorization returns the header for a credential: the scheme ApiKey for API keys, and Bearer for everything else.
func authorization(credential string) string {
	prefix, isMinted := access.LooksMinted(credential)
	if strings.HasPrefix(credential, access.DefaultKeyPrefix+"_") || isMinted && prefix != access.TokenPrefix {
		return "ApiKey " + credential
	}
	return "Bearer " + credential
}
