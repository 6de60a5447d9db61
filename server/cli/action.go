package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
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
	return advise(c.show.print(c, path, body), path)
}

// advise adds what to do about the refusal of a request. What operators name belongs to no organization.
func advise(err error, path string) error {
	p, _ := errors.AsType[client.Problem](err)
	mend := client.Mend(p.Code)
	if mend == "" {
		return err
	}
	if p.Code == "not_found" && !ofAll.MatchString(path) {
		mend += ", and --" + client.FlagOrganization + ": a command sees one organization"
	}
	return fault.AdviseMissing(err, "%s", mend)
}

var ofAll = regexp.MustCompile(`^/api/v1/(plans|roles|permissions|organizations|users/[^/]*/$)`)

// all is the value of --organization for a list of the items of all organizations.
const all = "all"

func (c *call) asksForAll() bool {
	l, isList := c.show.(list)
	return isList && l.ofAll && c.organization == all
}

// connect gets the client and the printer that the flags ask for. It first checks --organization.
func (c *call) connect() (err error) {
	if c.out, err = output.New(c.cmd); err != nil {
		return err
	}
	if id := c.organization; id != "" && !c.asksForAll() {
		_, err := idOrExternalID.parse(id)
		if strings.EqualFold(id, all) {
			err = errors.New("must be one organization; only the lists of keys, subscriptions, events, audit events and usage take all")
		}
		if err != nil {
			return output.UsageError{Err: wrongValue("--"+client.FlagOrganization, id, err)}
		}
	}
	c.client, err = client.Connect(c.cmd)
	if c.asksForAll() { // which the query says
		c.client.Organization = ""
	}
	return err
}

// build returns the path with its query, and the body, of a command line that was checked. A nil body sends none.
func (c *call) build() (path string, body []byte, err error) {
	members, query := map[string]any{}, url.Values{}
	maps.Copy(members, c.members)
	set := func(member string, value any) {
		if c.method == "GET" {
			query.Set(member, fmt.Sprint(value))
		} else {
			members[member] = value
		}
	}
	path = c.path
	for i, wanted := range c.arguments {
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
		case wanted.member != "":
			set(wanted.member, value)
		default:
			path = strings.Replace(path, "{"+wanted.name+"}", url.PathEscape(value.(string)), 1)
		}
	}
	for _, f := range c.fields {
		v := c.cmd.Flags().Lookup(f.name()).Value.(*flagValue)
		value := v.value
		switch {
		case v.isSet && v.inFile:
			value, err = v.readFile(c.cmd, v.text)
		case !v.isSet && f.fallback != "" && !c.cmd.Flags().Changed(f.beside):
			value, err = f.value.parse(f.fallback)
		case !v.isSet:
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("--%s: %w", f.name(), err)
		}
		set(f.member, value)
	}
	if c.asksForAll() {
		query.Set("organization", all)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if len(members) == 0 {
		return path, nil, c.checkNoBody()
	}
	body, err = json.Marshal(members)
	return path, body, err
}

// checkNoBody refuses a change that changes nothing.
func (c *call) checkNoBody() error {
	if c.method != http.MethodPatch && c.method != http.MethodPut {
		return nil
	}
	var flags []string
	for _, f := range c.fields {
		flags = append(flags, "--"+f.name())
	}
	return fmt.Errorf("nothing is to change; give one of %s", strings.Join(flags, ", "))
}

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
	text := c.question
	isDryRun, _ := c.cmd.Flags().GetBool("dry-run") // false for commands without this flag
	if text == "" || isDryRun || !output.CanAsk(c.cmd) && c.atTerminal {
		return nil
	}
	if strings.Contains(text, "{") {
		members := map[string]any{}
		_ = json.Unmarshal(body, &members) // which build has made; no body has no members
		members[memberDryRun] = true
		body, _ := json.Marshal(members) // of JSON
		preview, err := c.ask(c.method, path, body)
		if err != nil {
			return err
		}
		for _, m := range preview {
			text = strings.ReplaceAll(text, "{"+m.name+"}", m.text())
		}
	}
	return output.Confirm(c.cmd, text)
}
