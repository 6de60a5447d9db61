package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

const (
	flagUser  = "user"
	pathUsers = "/api/v1/users/"
)

// newToken returns the command for access tokens. An operator who has lost the first token creates another one with it.
func newToken() *cobra.Command {
	group := noun{name: "token", short: "Access tokens: credentials for people and back ends", verbs: []action{tokenCreate}}.command()
	cmd := group.Commands()[0]
	cmd.Flags().String(flagUser, "admin", "`user` of the token: an id, external id, e-mail address or name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := newCall(tokenCreate, cmd, args)
		if err := c.connect(); err != nil {
			return err
		}
		id, err := findUser(cmd.Context(), c.client, cmd.Flags().Lookup(flagUser).Value.String())
		if err != nil {
			return err
		}
		me, err := c.ask("GET", "/api/v1/whoami/", nil)
		if err != nil {
			return err
		}
		c.method, c.path = "POST", pathUsers+url.PathEscape(id)+"/access-tokens/"
		c.members = map[string]any{"organization_id": me.text("organization.id")}
		path, body, err := c.build()
		if err != nil {
			return err
		}
		return advise(c.show.print(c, path, body), path)
	}
	return group
}

// tokenCreate is the request, without the user and the organization.
var tokenCreate = action{
	verb: "create", short: "Create an access token and show it once",
	long: "Without --user, the token is for the first operator. So you can replace a lost token of the operator.\n\n" +
		"A token is valid in one organization. Without --organization, it is the organization of your own credential. Over the\n" +
		"local socket, it is the first organization.",
	example: "\n--user dev@acme.example --organization org_01h455vb4pex5vsknk084sn02q --expires-in 30d",
	fields:  append([]field{{member: "name", usage: "the name of the token", value: someText}}, expiryFields...),
	show:    thing{secret: "token"},
}

// findUser returns the id of the only user who has an id, external id, e-mail address or name.
func findUser(ctx context.Context, c client.Client, meant string) (string, error) {
	if access.UserID.Valid(meant) {
		return meant, nil
	}
	found, err := c.List(ctx, pathUsers+"?"+url.Values{"search": {meant}}.Encode(), "", maxItems)
	if err != nil {
		return "", err
	}
	users, err := parseObjects(found.Data)
	users = slices.DeleteFunc(users, func(u object) bool {
		return u.text("external_id") != meant && !strings.EqualFold(u.text("email"), meant) && u.text("name") != meant
	})
	if err == nil && len(users) != 1 {
		err = fault.Advise(fmt.Errorf("%s %s", output.Count(len(users), "user is", "users are"), output.Quote(meant)), `choose an id from "keyhook users list"`)
	}
	if err != nil {
		return "", err
	}
	return users[0].text("id"), nil
}
