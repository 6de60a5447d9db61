package cli

import (
	"errors"
	"slices"

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
	Mistakes []diagnosis.Mistake `json:"mistakes,omitempty"`
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
			v.Verdict, v.Error, v.Mistakes = verdictWrong, j.Err.Error(), j.Mistakes
		}
		all = append(all, v)
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
	sameName := func(a, b diagnosis.Mistake) bool { return a.Name == b.Name }
	return len(a.Mistakes) > 0 && slices.EqualFunc(a.Mistakes, b.Mistakes, sameName)
}
