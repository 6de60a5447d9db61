package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

const flagUser = "user"

// newToken is about the credential of an operator who comes from elsewhere, or who has lost the first one.
func newToken() *cobra.Command {
	group := &cobra.Command{Use: "token", Short: "Access tokens: for people, and for back ends"}
	client.Flags(group)
	output.Flags(group)
	group.AddCommand(newTokenCreate())
	return group
}

// tokenCreate is the request, once it is known whose token it is and where.
var tokenCreate = action{
	use: "create", short: "Create an access token, which is shown this once",
	long: "Without --user it is the first operator's: this is the way back in for who has lost that token. Without --organization\n" +
		"it is for the organization that you act in, over the local socket the first one.",
	example: "create\ncreate --user dev@acme.example --organization org_01h455vb4pex5vsknk084sn02q --expires-in 720h",
	method:  "POST", path: pathUsers + "{}/access-tokens/", secret: "token",
	body: append([]field{{member: "name", usage: "what to call it", kind: line}}, expiry...),
}

func newTokenCreate() *cobra.Command {
	cmd := tokenCreate.command("keyhook token")
	cmd.Flags().String(flagUser, "admin", "whose: the `id`, e-mail address or name of a user")
	must(cmd.RegisterFlagCompletionFunc(flagUser, idOf(userIDs).complete))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		user := cmd.Flags().Lookup(flagUser).Value.String()
		if _, err := line.read(user); err != nil {
			return output.UsageError{Err: fmt.Errorf("--%s: %w", flagUser, err)}
		}
		out, err := output.New(cmd)
		if err != nil {
			return err
		}
		c, err := connect(cmd)
		if err != nil {
			return err
		}
		return createToken(cmd, c, user, out)
	}
	return cmd
}

func createToken(cmd *cobra.Command, c client.Client, user string, out output.Printer) error {
	ctx := cmd.Context()
	id, err := findUser(ctx, c, user)
	if err != nil {
		return err
	}
	organization, err := actingIn(ctx, c)
	if err != nil {
		return err
	}
	a := tokenCreate
	a.arguments = []argument{{name: "USER", kind: idOf(userIDs)}}
	a.fixed = object{"organization_id": organization}
	path, body, err := a.request(cmd, []string{id})
	if err != nil {
		return err
	}
	return a.ask(ctx, c, path, body, nil, out)
}

// actingIn returns the organization that requests of this client act in.
func actingIn(ctx context.Context, c client.Client) (id string, err error) {
	got, err := c.Do(ctx, "GET", "/api/v1/whoami/", nil)
	if err != nil {
		return "", err
	}
	me, err := parseObject(got)
	return me.text("organization.id"), err
}

// findUser returns the id of the user whom a text means: by id, by e-mail address whatever its case, or by a name that
// only one has.
func findUser(ctx context.Context, c client.Client, meant string) (id string, err error) {
	if _, err := idOf(userIDs).read(meant); err == nil {
		return meant, nil
	}
	all, err := c.List(ctx, pathUsers, "", maxItems)
	if err != nil {
		return "", err
	}
	var named []string
	for _, item := range all.Data {
		var u struct{ ID, Email, Name string }
		if err := json.Unmarshal(item, &u); err != nil {
			return "", fmt.Errorf("read users: %w", err)
		}
		if strings.EqualFold(u.Email, meant) {
			return u.ID, nil
		}
		if u.Name == meant {
			named = append(named, u.ID)
		}
	}
	switch len(named) {
	case 0:
		return "", fmt.Errorf("there is no user %s: see \"keyhook users list\"", output.Quote(meant))
	case 1:
		return named[0], nil
	}
	return "", fmt.Errorf("%d users have the name %s: name one by its id, of \"keyhook users list\"", len(named), output.Quote(meant))
}
