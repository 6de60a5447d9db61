package receive

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// report is what verify prints.
type report struct {
	Valid     bool               `json:"valid"`
	At        time.Time          `json:"at"` // the receiver's clock
	BodyBytes int                `json:"body_bytes"`
	Schemes   []diagnosis.Result `json:"schemes"`
	Computed  *computed          `json:"computed,omitempty"`
}

// computed is the result for a signature that a program computed.
type computed struct {
	Explained bool                `json:"explained"`
	Scheme    diagnosis.Scheme    `json:"scheme,omitempty"`
	Mistakes  []diagnosis.Mistake `json:"mistakes"`
}

func (c *computed) right() bool { return c.Explained && len(c.Mistakes) == 0 }

// write prints the report in sentences.
func (r report) write(w io.Writer) {
	for i, v := range r.Schemes {
		switch {
		case v.Verdict == diagnosis.Right && v.Previous:
			fmt.Fprintf(w, "%s is right, but only with the previous secret.\n", v.Header)
			fmt.Fprint(w, "    This receiver has the old secret.\n    → Change to the new secret before the overlap ends.\n")
		case v.Verdict == diagnosis.Right:
			fmt.Fprintf(w, "%s is right.\n", v.Header)
		case v.Verdict == absent:
			fmt.Fprintf(w, "%s is not present.\n", v.Header)
		case i > 0 && sameMistakes(r.Schemes[i-1], v):
			fmt.Fprintf(w, "%s: the same mistake.\n", v.Header)
		case strings.HasPrefix(v.Mistakes[0].Name, "clock_"):
			fmt.Fprintf(w, "%s is NOT ACCEPTED because of its timestamp.\n", v.Header)
			writeMistakes(w, v.Mistakes)
		default:
			fmt.Fprintf(w, "%s is WRONG: %s.\n", v.Header, strings.TrimSuffix(output.Escape(v.Text), "."))
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
		fmt.Fprint(w, `No known mistake explains the computed signature. Compare the secret, the raw bytes of the body and the signed message:
  X-Service-Signature is the hex HMAC-SHA256 over "<X-Service-Timestamp>.<body>"; the key is the whole secret.
  webhook-signature is "v1," and the base64 HMAC-SHA256 over "<webhook-id>.<webhook-timestamp>.<body>"; the key is decoded.
`)
	case len(c.Mistakes) == 0:
		fmt.Fprintf(w, "The computed signature is right, in the scheme %s.\n", c.Scheme)
	default:
		fmt.Fprintf(w, "The computed signature is WRONG, in the scheme %s.\n", c.Scheme)
		writeMistakes(w, c.Mistakes)
	}
}

// writeMistakes prints what to fix.
func writeMistakes(w io.Writer, all []diagnosis.Mistake) {
	for _, m := range all {
		mark := "probably"
		if m.Proved {
			mark = "proved"
		}
		if strings.HasPrefix(m.Name, "clock_") {
			m.Advice += " Here, --at sent uses the delivery's own time."
		}
		fmt.Fprintf(w, "  %s (%s)\n    %s\n    → %s\n", m.Name, mark, m.What, m.Advice)
	}
}
