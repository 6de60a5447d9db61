package cli

import (
	"encoding/json"
	"maps"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// memberDryRun is the member of a body that asks for a dry run.
const memberDryRun = "dry_run"

// isDryRun reports whether the user asks for a dry run.
func (a action) isDryRun(cmd *cobra.Command) bool {
	for _, f := range a.body {
		if f.member == memberDryRun {
			v := valueOf(cmd, f)
			return v.isSet && v.value == true
		}
	}
	return false
}

// makePreview makes the dry run of an action with a preview, and returns its response; nil for an action without one. body is
// the body of the request, which the dry run has too unless the action has another one.
func (a action) makePreview(cmd *cobra.Command, c client.Client, args []string, body []byte) (object, error) {
	if a.preview == "" || a.isDryRun(cmd) {
		return nil, nil
	}
	members := map[string]any{}
	maps.Copy(members, a.previewBody)
	if a.previewBody == nil && body != nil {
		if err := json.Unmarshal(body, &members); err != nil {
			return nil, err
		}
	}
	members[memberDryRun] = true
	body, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(cmd.Context(), "POST", strings.Replace(a.preview, "{}", url.PathEscape(args[0]), 1), body)
	if err != nil && a.question == "" {
		return nil, nil // the request itself does not need it
	}
	if err != nil {
		return nil, err
	}
	return parseObject(response)
}

// confirm asks the question of the action, with the members of the preview.
func (a action) confirm(cmd *cobra.Command, preview object) error {
	if a.question == "" || a.isDryRun(cmd) {
		return nil
	}
	if a.atTerminal && !output.CanAsk(cmd) {
		return nil
	}
	question := a.question
	for _, m := range preview {
		question = strings.ReplaceAll(question, "{"+m.name+"}", m.text())
	}
	return output.Confirm(cmd, question)
}
