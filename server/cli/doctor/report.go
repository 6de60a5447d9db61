package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// The results of a check.
const (
	resultOK      = "ok"
	resultWarning = "warning" // it works, but not as it should
	resultProblem = "problem" // it does not work, or will not
)

// finding is the result of one check.
type finding struct {
	Result string `json:"result"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Mend   string `json:"mend,omitempty"` // how to fix it
}

// report is all that doctor found.
type report struct {
	findings        []finding
	serverHasAlerts bool // the running server has alerts.urls, which are secret
}

func (r *report) ok(check, format string, args ...any) { r.add(resultOK, check, "", format, args...) }

func (r *report) warning(check, mend, format string, args ...any) {
	r.add(resultWarning, check, mend, format, args...)
}

func (r *report) problem(check, mend, format string, args ...any) {
	r.add(resultProblem, check, mend, format, args...)
}

// failure adds an error as a problem, with its mend if it has one.
func (r *report) failure(check string, err error) {
	what, mend := fault.Split(err)
	r.problem(check, mend, "%s", what)
}

// add escapes the text, because a receiver wrote parts of it and programs print it.
func (r *report) add(result, check, mend, format string, args ...any) {
	text := output.EscapeLines(strings.TrimSpace(fmt.Sprintf(format, args...)))
	r.findings = append(r.findings, finding{result, check, text, mend})
}

// write prints the report for people or as JSON. It returns an error if there is a problem.
func (r *report) write(out io.Writer, asJSON bool) error {
	count := map[string]int{}
	for _, f := range r.findings {
		count[f.Result]++
	}
	problems, warnings := count[resultProblem], count[resultWarning]
	var err error
	if asJSON {
		err = output.WriteJSON(out, struct {
			Findings []finding `json:"findings"`
			Problems int       `json:"problems"`
			Warnings int       `json:"warnings"`
		}{r.findings, problems, warnings})
	} else {
		err = r.table(out).Write(out)
	}
	if err == nil && problems > 0 {
		err = fmt.Errorf("%s and %s found", output.Count(problems, "problem", "problems"), output.Count(warnings, "warning", "warnings"))
	}
	return err
}

func (r *report) table(out io.Writer) *output.Table {
	t := &output.Table{Palette: output.NewPalette(out), Style: func(row []string, column int) output.Style {
		return output.StateStyle(row[column])
	}}
	for _, f := range r.findings {
		lines := strings.Split(f.Text, "\n")
		if f.Mend != "" {
			lines = append(lines, "→ "+f.Mend)
		}
		t.Add(f.Result, f.Check, lines[0])
		for _, line := range lines[1:] {
			t.Add("", "", strings.TrimSpace(line))
		}
	}
	return t
}
