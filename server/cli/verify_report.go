package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// verification is what verify has to say.
type verification struct {
	Valid     bool      `json:"valid"`
	At        time.Time `json:"at"` // by which the timestamps were judged
	BodyBytes int       `json:"body_bytes"`
	Schemes   []verdict `json:"schemes"`
	Computed  *computed `json:"computed,omitempty"`
}

// computed is what there is to say of a signature that some code came to.
type computed struct {
	Explained bool      `json:"explained"`
	Scheme    string    `json:"scheme,omitempty"`
	Mistakes  []diagnosis.Mistake `json:"mistakes"`
}

func (c *computed) right() bool { return c.Explained && len(c.Mistakes) == 0 }

func (r verification) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// write tells it in sentences.
func (r verification) write(w io.Writer) {
	for i, v := range r.Schemes {
		switch {
		case v.Verdict == verdictRight && v.Previous:
			fmt.Fprintf(w, "%s is right, but only by the secret before the last rotation.\n", v.Header)
			writeMistakes(w, []diagnosis.Mistake{{What: "This receiver has the old secret.", Advice: "Take over the new one before the overlap ends.", Proved: true}})
		case v.Verdict == verdictRight:
			fmt.Fprintf(w, "%s is right.\n", v.Header)
		case v.Verdict == verdictAbsent:
			fmt.Fprintf(w, "%s is not there.\n", v.Header)
		case i > 0 && sameMistakes(r.Schemes[i-1], v):
			fmt.Fprintf(w, "%s is wrong for the same reason.\n", v.Header)
		default:
			fmt.Fprintf(w, "%s is WRONG: %s.\n", v.Header, strings.TrimSuffix(v.Error, "."))
			writeMistakes(w, v.Mistakes)
		}
	}
	if r.Computed != nil {
		r.Computed.write(w)
	}
}

func (c *computed) write(w io.Writer) {
	switch {
	case !c.Explained:
		fmt.Fprint(w, "The computed signature is explained by no known mistake: look at the secret and the bytes that go into it.\n")
	case len(c.Mistakes) == 0:
		fmt.Fprintf(w, "The computed signature is the right one of the scheme %s.\n", c.Scheme)
	default:
		fmt.Fprintf(w, "The computed signature is one of the scheme %s, made wrongly.\n", c.Scheme)
		writeMistakes(w, c.Mistakes)
	}
}

// writeMistakes lists what to mend.
func writeMistakes(w io.Writer, all []diagnosis.Mistake) {
	for _, m := range all {
		mark := "probably"
		if m.Proved {
			mark = "proved"
		}
		if strings.HasPrefix(m.Name, "clock_") {
			m.Advice += " Here, --at sent judges it by its own time."
		}
		if m.Name != "" {
			fmt.Fprintf(w, "  %s (%s)\n", m.Name, mark)
		}
		fmt.Fprintf(w, "    %s\n    → %s\n", m.What, m.Advice)
	}
}
