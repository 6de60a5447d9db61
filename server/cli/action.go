package cli

import (
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

// call is a command in progress.
type call struct {
	action
	cmd          *cobra.Command
	args         []string
	organization string // what --organization says
	client       client.Client
	out          output.Printer
}

func newCall(a action, cmd *cobra.Command, args []string) *call {
	return &call{action: a, cmd: cmd, args: args, organization: cmd.Flags().Lookup(client.FlagOrganization).Value.String()}
}

// run makes the request of an action and prints the response.
func (a action) run(cmd *cobra.Command, args []string) error {
	c := newCall(a, cmd, args)
	path, body, err := c.build()
	if err != nil {
		return output.UsageError{Err: err}
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.confirm(path, body); err != nil {
		return err
	}
	err = c.show.print(c, path, body)
	if client.IsNotFound(err) {
		return fault.AdviseMissing(err, "check the id, and --%s: a command sees one organization", client.FlagOrganization)
	}
	return err
}

// all is the value of --organization for a list of the items of all organizations.
const all = "all"

func (c *call) asksForAll() bool {
	l, isList := c.show.(list)
	return isList && l.ofAll && c.organization == all
}

// connect gets the client and the printer that the flags ask for.
func (c *call) connect() (err error) {
	if c.out, err = output.New(c.cmd); err != nil {
		return err
	}
	if !c.asksForAll() {
		c.client, err = connect(c.cmd)
		return err
	}
	c.client, err = client.Connect(c.cmd)
	c.client.Organization = "" // the query asks for all
	return err
}

// connect returns the client that the flags ask for. It first checks --organization.
func connect(cmd *cobra.Command) (client.Client, error) {
	if id := cmd.Flags().Lookup(client.FlagOrganization).Value.String(); id != "" {
		_, err := idOrExternalID.parse(id)
		if strings.EqualFold(id, all) {
			err = errors.New("must be one organization; only the lists of keys, subscriptions, events, audit events and usage take all")
		}
		if err != nil {
			return client.Client{}, output.UsageError{Err: wrongValue("--"+client.FlagOrganization, id, err)}
		}
	}
	return client.Connect(cmd)
}

// build returns the path with its query, and the body, of a command line that was checked. A nil body sends none.
func (c *call) build() (path string, body []byte, err error) {
	members, query := map[string]any{}, url.Values{}
	maps.Copy(members, c.request.members)
	path = c.request.path
	for i, wanted := range c.request.arguments {
		text := wanted.fallback
		switch {
		case i < len(c.args):
			text = c.args[i]
		case text == "":
			continue
		}
		value, err := wanted.value.read(c.cmd, text)
		switch {
		case err != nil:
			return "", nil, wanted.value.wrong(wanted.name, text, err)
		case wanted.member != "" && c.request.method == "GET":
			query.Set(wanted.member, fmt.Sprint(value))
		case wanted.member != "":
			members[wanted.member] = value
		default:
			path = strings.Replace(path, "{}", url.PathEscape(value.(string)), 1)
		}
	}
	for _, f := range c.body {
		v := valueOf(c.cmd, f)
		if !v.isSet {
			if f.fallback != "" && !c.cmd.Flags().Changed(f.beside) {
				members[f.member], _ = f.value.parse(f.fallback)
			}
			continue
		}
		if members[f.member] = v.value; v.inFile {
			if members[f.member], err = v.readFile(c.cmd, v.text); err != nil {
				return "", nil, fmt.Errorf("--%s: %w", f.name(), err)
			}
		}
	}
	if c.asksForAll() {
		query.Set("organization", all)
	}
	for _, f := range c.query {
		switch v := valueOf(c.cmd, f); {
		case v.isSet:
			query.Set(f.member, fmt.Sprint(v.value))
		case f.fallback != "" && !c.cmd.Flags().Changed(f.beside):
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

// ask makes another request.
func (c *call) ask(method, path string, body []byte) (object, error) {
	response, err := c.client.Do(c.cmd.Context(), method, path, body)
	if err != nil {
		return nil, err
	}
	return parseObject(response)
}

// memberDryRun is the member of a body that asks for a dry run.
const memberDryRun = "dry_run"

// confirm asks the question of the action. A dry run with the same body fills in its figures.
func (c *call) confirm(path string, body []byte) error {
	text := c.question.text
	isDryRun, _ := c.cmd.Flags().GetBool("dry-run") // false for commands without this flag
	if text == "" || isDryRun || !output.CanAsk(c.cmd) && c.question.atTerminal {
		return nil
	}
	if strings.Contains(text, "{") {
		members := map[string]any{}
		_ = json.Unmarshal(body, &members) // which build has made; no body has no members
		members[memberDryRun] = true
		body, _ := json.Marshal(members) // of JSON
		preview, err := c.ask(c.request.method, path, body)
		if err != nil {
			return err
		}
		for _, m := range preview {
			text = strings.ReplaceAll(text, "{"+m.name+"}", m.text())
		}
	}
	return output.Confirm(c.cmd, text)
}
