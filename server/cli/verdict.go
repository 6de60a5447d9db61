package cli

import (
	"errors"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/dispatch/signature"
)

// What a signature is called.
const (
	verdictRight  = "right"
	verdictWrong  = "wrong"
	verdictAbsent = "absent" // the delivery has none in this scheme, but one in the other
)

// verdict is what is shown of one scheme.
type verdict struct {
	Scheme   string    `json:"scheme"`
	Header   string    `json:"header"`
	Verdict  string    `json:"verdict"`
	Previous bool      `json:"by_previous_secret,omitempty"`
	Error    string    `json:"error,omitempty"`
	Mistakes []mistake `json:"mistakes,omitempty"`
}

// mistake is one thing to mend.
type mistake struct {
	Name   string `json:"name"`
	What   string `json:"what"`
	Advice string `json:"advice"`
	Proved bool   `json:"proved"` // undone, it gives the signature
}

// judge judges a delivery by both schemes.
func judge(d diagnosis.Delivery) []verdict {
	judged := diagnosis.Judge(d)
	var all []verdict
	for i, j := range judged {
		v := verdict{Scheme: string(j.Scheme), Header: j.Header, Verdict: verdictRight, Previous: j.Previous}
		switch isAbsent := d.Header.Get(j.Header) == "" && errors.Is(j.Err, signature.ErrMissing); {
		case isAbsent && d.Header.Get(judged[1-i].Header) != "":
			v.Verdict = verdictAbsent
		case j.Err != nil:
			v.Verdict, v.Error, v.Mistakes = verdictWrong, j.Err.Error(), mistakes(j.Mistakes)
		}
		all = append(all, v)
	}
	return all
}

func mistakes(found []diagnosis.Mistake) []mistake {
	all := []mistake{}
	for _, m := range found {
		all = append(all, mistake(m))
	}
	return all
}

// isRight reports whether no signature that is there is wrong; at least one is there then.
func isRight(verdicts []verdict) bool {
	for _, v := range verdicts {
		if v.Verdict == verdictWrong {
			return false
		}
	}
	return true
}

// sameMistakes reports whether all that is wrong is wrong for the same reason.
func sameMistakes(a, b verdict) bool {
	if len(a.Mistakes) != len(b.Mistakes) || len(a.Mistakes) == 0 {
		return false
	}
	for i := range a.Mistakes {
		if a.Mistakes[i].Name != b.Mistakes[i].Name {
			return false
		}
	}
	return true
}
