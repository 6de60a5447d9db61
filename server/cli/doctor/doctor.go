// Package doctor owns the commands that look for what is wrong: doctor and healthcheck. It changes nothing, and knows no parts of a server.
package doctor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options are what the checks need from the other commands.
type Options struct {
	Schema string                                              // the text of schema.sql
	Listen func(setting, address string) (net.Listener, error) // how serve listens on the address of a setting
}

// New returns the command doctor.
func New(o Options) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Find problems of the installation or of a receiver, and say how to fix them",
		Long: `Find problems of the installation or of a receiver, and say how to fix them. Doctor checks settings, secrets, directory,
disk, database and certificate. Doctor changes nothing. If a server is running, doctor asks the server for its settings
and does not open the database. If no server is running, use the same flags, environment and file as for serve.

With a URL, doctor also checks that receiver: name, addresses, certificate, redirects, response times and clock. Doctor
connects as a delivery does. It sends one HEAD request without a body, and nothing else.

The exit code is 1 if there is a problem.`,
		Example: `  keyhook doctor
  keyhook doctor https://example.com/hook
  keyhook doctor --dev http://127.0.0.1:9000/hook`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, r := cmd.Context(), &report{}
			areValid := r.checkSettings(cmd.Flags())
			c, _ := config.Load(cmd.Flags()) // checkSettings has reported the error
			r.checkSecrets(c)
			if areValid { // otherwise, no other check is possible
				c = r.checkDatabase(ctx, c, o)
				r.checkServing(c)
				if len(args) == 1 {
					r.checkReceiver(ctx, c, args[0])
				}
			}
			return r.write(cmd.OutOrStdout(), asJSON)
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// NewHealthcheck returns the command healthcheck.
func NewHealthcheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the running server whether it is ready",
		Long: `Ask the running server whether it is ready, and wait at most three seconds. The exit code is 0 if the server is ready.
The exit code is 1 if the server is not ready or not running. Use the same flags, environment and file as for serve. The
command does not open the database.`,
		Example: `  keyhook healthcheck
  keyhook healthcheck --config keyhook.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return errors.New(err.Error()) // exit code 1, because containers give 2 another meaning
			}
			ready, err := askReady(cmd.Context(), c)
			if err != nil {
				return err
			}
			if len(ready.failures) > 0 {
				return fmt.Errorf("%s is not ready: %s", ready.where, strings.Join(ready.failures, "; "))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ready: %s\n", ready.where)
			return nil
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().Lookup("dev").Hidden = true // it makes no difference here
	return cmd
}

// finding is the result of one check.
type finding struct {
	Result string `json:"result"` // "ok"; "warning": it works, but not as it should; "problem": it does not work, or will not
	Check  string `json:"check"`
	Text   string `json:"text"`
	Mend   string `json:"mend,omitempty"` // how to fix it
}

// report is all that doctor found.
type report struct {
	Findings []finding `json:"findings"`
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`

	serverHasAlerts bool // the running server has alerts.urls, which are secret
}

func (r *report) ok(check, format string, args ...any) { r.add("ok", check, "", format, args...) }

func (r *report) warning(check, mend, format string, args ...any) {
	r.Warnings++
	r.add("warning", check, mend, format, args...)
}

func (r *report) problem(check, mend, format string, args ...any) {
	r.Problems++
	r.add("problem", check, mend, format, args...)
}

// failure adds an error as a problem, with its mend if it has one. It adds each of config.Problems as a problem.
func (r *report) failure(check string, err error) {
	problems, _ := errors.AsType[config.Problems](err)
	for _, p := range problems {
		r.problem(check, p.Mend, "%s: %s", p.Where(), p.What)
	}
	if problems == nil {
		what, mend := fault.Split(err)
		r.problem(check, mend, "%s", what)
	}
}

// add escapes the text, because a receiver wrote parts of it and programs print it.
func (r *report) add(result, check, mend, format string, args ...any) {
	text := output.EscapeLines(strings.TrimSpace(fmt.Sprintf(format, args...)))
	r.Findings = append(r.Findings, finding{result, check, text, mend})
}

// write prints the report for people or as JSON. It returns an error if there is a problem.
func (r *report) write(out io.Writer, asJSON bool) error {
	var t output.Table
	for _, f := range r.Findings {
		if f.Mend != "" {
			f.Text += "\n→ " + f.Mend
		}
		for line := range strings.SplitSeq(f.Text, "\n") {
			t.Add(f.Result, f.Check, strings.TrimSpace(line))
			f.Result, f.Check = "", "" // only the first line has them
		}
	}
	var err error
	if asJSON {
		err = output.WriteJSON(out, r)
	} else {
		err = t.Write(out)
	}
	if err == nil && r.Problems > 0 {
		err = fmt.Errorf("%s and %s found", output.Count(r.Problems, "problem", "problems"), output.Count(r.Warnings, "warning", "warnings"))
	}
	return err
}
