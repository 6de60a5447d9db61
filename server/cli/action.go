package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// run makes the request of an action and shows the answer.
func (a action) run(cmd *cobra.Command, args []string) error {
	path, body, err := a.request(cmd, args)
	if err != nil {
		return output.UsageError{Err: err}
	}
	out, err := output.New(cmd)
	if err != nil {
		return err
	}
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	if err := a.agreed(cmd); err != nil {
		return err
	}
	if a.list != "" {
		return a.showPages(cmd, c, path, out)
	}
	return a.ask(cmd.Context(), c, path, body, args, out)
}

// connect returns the client that the flags ask for, after a check of --organization.
func connect(cmd *cobra.Command) (client.Client, error) {
	if id := cmd.Flags().Lookup(client.FlagOrganization).Value.String(); id != "" {
		if _, err := idOf(organizationIDs).read(id); err != nil {
			return client.Client{}, output.UsageError{Err: fmt.Errorf("--%s: %w", client.FlagOrganization, err)}
		}
	}
	return client.Connect(cmd)
}

// flagYes answers what would be asked.
const flagYes = "yes"

// agreed asks what must be answered before anything is done. The end of the input is an answer too: no.
func (a action) agreed(cmd *cobra.Command) error {
	if a.asks == "" {
		return nil
	}
	if yes, _ := cmd.Flags().GetBool(flagYes); yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type yes: ", a.asks)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	return errors.New("nothing was done; type yes, or give --" + flagYes)
}

// ask sends one request and shows its one answer.
func (a action) ask(ctx context.Context, c client.Client, path string, body []byte, args []string, out output.Printer) error {
	got, err := c.Do(ctx, a.method, path, body)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		words := make([]any, strings.Count(a.done, "%s"))
		for i := range words {
			words[i] = output.Escape(args[i])
		}
		return out.Say(fmt.Sprintf(a.done, words...))
	}
	if err := a.show(out, got); err != nil {
		return err
	}
	return a.verdict(got)
}

// request makes of a command line that was checked the path, with its query, and the body; nil is none.
func (a action) request(cmd *cobra.Command, args []string) (path string, body []byte, err error) {
	members := object{}
	maps.Copy(members, a.fixed)
	path = a.path
	for i, wanted := range a.arguments {
		text := wanted.fallback
		if i < len(args) {
			text = args[i]
		}
		value, err := wanted.kind.value(cmd, text)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", wanted.name, err)
		}
		if wanted.member != "" {
			members[wanted.member] = value
			continue
		}
		before, after, _ := strings.Cut(path, "{}")
		path = before + url.PathEscape(value.(string)) + after
	}
	for _, f := range a.body {
		if g := flagOf(cmd, f); g.set {
			members[f.member] = g.value
		}
	}
	query := url.Values{}
	for _, f := range a.query {
		if g := flagOf(cmd, f); g.set {
			query.Set(f.member, fmt.Sprint(g.value))
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

func flagOf(cmd *cobra.Command, f field) *given { return cmd.Flags().Lookup(f.name()).Value.(*given) }

// value reads an argument, from the standard input where it says so.
func (k kind) value(cmd *cobra.Command, text string) (any, error) {
	if !k.stdin || text != "-" {
		return k.read(text)
	}
	all, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), client.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the standard input: %w", err)
	}
	if len(all) > client.MaxBody {
		return nil, errors.New("what comes in is larger than 16 MiB")
	}
	return k.read(strings.TrimSpace(string(all)))
}

// verdict makes a failure of an answer that says no.
func (a action) verdict(body []byte) error {
	if a.holds == "" {
		return nil
	}
	member, wanted, _ := strings.Cut(a.holds, "=")
	answer, err := parseObject(body)
	if err != nil {
		return err
	}
	if answer.text(member) == wanted {
		return nil
	}
	reason := answer.text("code")
	if reason == none {
		reason = answer.text("error")
	}
	return fmt.Errorf("%s: %s", a.fails, reason)
}
