package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// run runs an action, and says where to look for a thing that the server does not find.
func (a action) run(cmd *cobra.Command, args []string) error {
	a.organization = cmd.Flags().Lookup(client.FlagOrganization).Value.String()
	return a.adviseIfMissing(a.perform(cmd, args), args)
}

// perform makes the request of an action and prints the response.
func (a action) perform(cmd *cobra.Command, args []string) error {
	path, body, err := a.request(cmd, args)
	if err != nil {
		return output.UsageError{Err: err}
	}
	out, err := output.New(cmd)
	if err != nil {
		return err
	}
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	found, err := a.makePreview(cmd, c, args, body)
	if err != nil {
		return err
	}
	if err := a.confirm(cmd, found); err != nil {
		return err
	}
	if a.asksForAll(cmd) {
		a.columns += " organization_id"
	}
	if a.columns != "" {
		return a.showPages(cmd, c, path, out)
	}
	if a.summary != nil {
		before, isDryRun := a.readSubject(cmd.Context(), c, args), a.isDryRun(cmd)
		a.note = func(response object, _ []string, _ string) string { return a.summary(response, before, isDryRun) }
	}
	if err := a.send(cmd.Context(), c, path, body, args, out); err != nil {
		return err
	}
	if a.summary == nil && found != nil && a.note != nil {
		out.Note("\n%s", a.note(found, args, a.organization))
	}
	return nil
}

// readSubject reads the thing that an action is about; nil if the caller may not read it.
func (a action) readSubject(ctx context.Context, c client.Client, args []string) object {
	response, err := c.Do(ctx, "GET", strings.Replace(a.subject, "{}", url.PathEscape(args[0]), 1), nil)
	if err != nil {
		return nil
	}
	o, err := parseObject(response)
	if err != nil {
		return nil
	}
	return o
}

// all is the value of --organization for a list of the items of all organizations.
const all = "all"

func (a action) asksForAll(cmd *cobra.Command) bool {
	return a.listsAll && cmd.Flags().Lookup(client.FlagOrganization).Value.String() == all
}

// connect returns the client that the flags ask for.
func (a action) connect(cmd *cobra.Command) (client.Client, error) {
	if !a.asksForAll(cmd) {
		return connect(cmd)
	}
	c, err := client.Connect(cmd)
	c.Organization = "" // the query asks for all
	return c, err
}

// connect returns the client that the flags ask for. It first checks --organization.
func connect(cmd *cobra.Command) (client.Client, error) {
	if id := cmd.Flags().Lookup(client.FlagOrganization).Value.String(); id != "" {
		named := idOrExternalID(organizationID)
		_, err := named.parse(id)
		if strings.EqualFold(id, all) {
			err = errors.New("must be one organization; only the lists of keys, subscriptions, events and audit events take all")
		}
		if err != nil {
			return client.Client{}, output.UsageError{Err: named.wrong("--"+client.FlagOrganization, id, err)}
		}
	}
	return client.Connect(cmd)
}

// send sends one request and prints its response.
func (a action) send(ctx context.Context, c client.Client, path string, body []byte, args []string, out output.Printer) error {
	got, err := c.Do(ctx, a.method, path, body)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		escaped := make([]any, strings.Count(a.done, "%s"))
		for i := range escaped {
			escaped[i] = output.Escape(args[i])
		}
		return out.Say(fmt.Sprintf(a.done, escaped...))
	}
	if err := a.show(out, got); err != nil {
		return err
	}
	return a.checkCondition(got)
}

// request returns the path with its query, and the body, of a command line that was checked. A nil body sends none.
func (a action) request(cmd *cobra.Command, args []string) (path string, body []byte, err error) {
	members, query := map[string]any{}, url.Values{}
	maps.Copy(members, a.fixedBody)
	path = a.path
	for i, wanted := range a.arguments {
		text := wanted.fallback
		switch {
		case i < len(args):
			text = args[i]
		case text == "":
			continue
		}
		value, err := wanted.value.read(cmd, text)
		switch {
		case err != nil:
			return "", nil, wanted.value.wrong(wanted.name, text, err)
		case wanted.member != "" && a.method == "GET":
			query.Set(wanted.member, fmt.Sprint(value))
		case wanted.member != "":
			members[wanted.member] = value
		default:
			before, after, _ := strings.Cut(path, "{}")
			path = before + url.PathEscape(value.(string)) + after
		}
	}
	for _, f := range a.body {
		v := valueOf(cmd, f)
		if !v.isSet {
			continue
		}
		if members[f.member] = v.value; v.inFile {
			if members[f.member], err = v.readFile(cmd, v.text); err != nil {
				return "", nil, fmt.Errorf("--%s: %w", f.name(), err)
			}
		}
	}
	if a.asksForAll(cmd) {
		query.Set("organization", all)
	}
	for _, f := range a.query {
		switch v := valueOf(cmd, f); {
		case v.isSet:
			query.Set(f.member, fmt.Sprint(v.value))
		case f.fallback != "" && !cmd.Flags().Changed(f.beside):
			query.Set(f.member, f.fallback)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if len(members) == 0 {
		return path, nil, nil
	}
	body, err = json.Marshal(members)
	return path, body, err
}

// checkCondition returns an error if the response does not meet the condition of the action.
func (a action) checkCondition(body []byte) error {
	if a.condition == "" {
		return nil
	}
	member, wanted, _ := strings.Cut(a.condition, "=")
	response, err := parseObject(body)
	if err != nil {
		return err
	}
	if response.text(member) == wanted {
		return nil
	}
	reason := response.text("code")
	if reason == absent {
		reason = response.text("error")
	}
	return fmt.Errorf("%s: %s", a.failure, reason)
}

// inOrganization are the lists that each organization has for itself. A command finds only the items of one organization.
var inOrganization = []string{pathKeys, pathSubscriptions, pathEvents, pathAudit}

// ofServer are the lists that all organizations share, with the nouns that show them.
var ofServer = map[string]string{
	pathOrganizations: "organizations", pathUsers: "users", pathRoles: "roles", pathPermissions: "permissions", pathPlans: "plans",
}

// adviseIfMissing adds to the refusal of an id where to look for the right id.
func (a action) adviseIfMissing(err error, args []string) error {
	if !client.IsNotFound(err) {
		return err
	}
	for _, path := range inOrganization {
		switch {
		case !strings.HasPrefix(a.path, path):
		case a.organization == "":
			return fault.AdviseMissing(err, "if another organization has it, name that organization with --%s", client.FlagOrganization)
		case len(args) == 0: // only the organization can be missing
			return fault.AdviseMissing(err, `choose one from "keyhook organizations list"`)
		default:
			return fault.AdviseMissing(err, "check the id, and --%s", client.FlagOrganization)
		}
	}
	for path, noun := range ofServer {
		if a.organization == "" && strings.HasPrefix(a.path, path) && strings.Count(a.path, "{}") == 1 {
			return fault.AdviseMissing(err, `choose one from "keyhook %s list"`, noun)
		}
	}
	if strings.HasPrefix(a.path, pathOrganizations) && len(args) == 2 {
		return fault.AdviseMissing(err, `write ids or external ids; "keyhook organizations list" and "keyhook users list" show them`)
	}
	return err
}
