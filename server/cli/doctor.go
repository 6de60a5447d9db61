package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
)

// What a finding may be.
const (
	isWell    = "ok"
	isWarning = "warning"
	isProblem = "problem"
)

// finding is one thing that was looked at.
type finding struct {
	Result string `json:"result"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Mend   string `json:"mend,omitempty"`
}

// examination is all that was found.
type examination struct {
	schema string
	list   []finding
}

func (d *examination) well(check, format string, args ...any) {
	d.list = append(d.list, finding{isWell, check, fmt.Sprintf(format, args...), ""})
}

// warn is for what works, though not as it should.
func (d *examination) warn(check, mend, format string, args ...any) {
	d.list = append(d.list, finding{isWarning, check, fmt.Sprintf(format, args...), mend})
}

// wrong is for what does not work, or will not.
func (d *examination) wrong(check, mend, format string, args ...any) {
	d.list = append(d.list, finding{isProblem, check, fmt.Sprintf(format, args...), mend})
}

// refused notes an error with its mend, if it has one.
func (d *examination) refused(check string, err error) {
	what, mend := fault.Split(withMend(err))
	d.wrong(check, mend, "%s", what)
}

func (d *examination) count(result string) (n int) {
	for _, f := range d.list {
		if f.Result == result {
			n++
		}
	}
	return n
}

func newDoctor(schema string) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Look for what is wrong, here or with a receiver, and say how to mend it",
		Long: `Look for what is wrong and say how to mend it: settings, secrets, directory, disk, database, certificate, clock. Call it
with the flags and in the environment that serve is called with. It changes nothing, and a running server is only asked
how it is.

With a URL it also looks at a receiver of webhooks as deliveries will find it: name, addresses, certificate, redirects,
times, clock. For that it sends the URL one HEAD request without a body, and no more.

It ends with 1 where there is a problem.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := &examination{schema: schema}
			c, err := config.Load(cmd.Flags())
			if d.settings(cmd.Flags(), err) {
				d.secrets(c)
				d.files(cmd.Context(), c)
				d.serving(c)
				d.clock(cmd.Context())
				if len(args) == 1 {
					d.receiver(cmd.Context(), c, args[0])
				}
			}
			return d.write(cmd.OutOrStdout(), asJSON)
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "as a JSON object")
	return cmd
}

// write shows what was found, for eyes or for a machine. The error says that there is a problem.
func (d *examination) write(out io.Writer, asJSON bool) error {
	problems, warnings := d.count(isProblem), d.count(isWarning)
	for i := range d.list { // a receiver wrote parts of some
		d.list[i].Text = output.EscapeLines(d.list[i].Text)
	}
	if asJSON {
		if err := output.WriteJSON(out, object{"findings": d.list, "problems": problems, "warnings": warnings}); err != nil {
			return err
		}
	} else {
		t := output.Table{}
		for _, f := range d.list {
			lines := strings.Split(strings.TrimSpace(f.Text), "\n")
			if f.Mend != "" {
				lines = append(lines, "→ "+f.Mend)
			}
			t.Add(f.Result, f.Check, lines[0])
			for _, line := range lines[1:] {
				t.Add("", "", strings.TrimSpace(line))
			}
		}
		if err := t.Write(out); err != nil {
			return err
		}
	}
	if problems > 0 {
		return fmt.Errorf("%s and %s found", output.Count(problems, "problem", "problems"), output.Count(warnings, "warning", "warnings"))
	}
	return nil
}
