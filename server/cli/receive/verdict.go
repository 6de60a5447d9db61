package receive

import (
	"errors"
	"slices"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// The results for one signature.
const (
	right  = "right"
	wrong  = "wrong"
	absent = "absent" // the delivery is signed in the other scheme only
)

// verdict is the result for one scheme, as the commands print it.
type verdict struct {
	Scheme   string              `json:"scheme"`
	Header   string              `json:"header"`
	Verdict  string              `json:"verdict"`
	Previous bool                `json:"by_previous_secret,omitempty"`
	Error    string              `json:"error,omitempty"`
	Mistakes []diagnosis.Mistake `json:"mistakes,omitempty"`
}

// judge checks a delivery in both schemes.
func judge(d diagnosis.Delivery) []verdict {
	judged := diagnosis.Judge(d)
	var all []verdict
	for i, j := range judged {
		v := verdict{Scheme: string(j.Scheme), Header: j.Header, Verdict: right, Previous: j.Previous}
		isAbsent := errors.Is(j.Err, signature.ErrMissing) && d.Header.Get(j.Header) == ""
		switch {
		case isAbsent && d.Header.Get(judged[1-i].Header) != "":
			v.Verdict = absent
		case j.Err != nil:
			v.Verdict, v.Error, v.Mistakes = wrong, j.Err.Error(), j.Mistakes
		}
		all = append(all, v)
	}
	return all
}

// isRight reports whether no signature is wrong. At least one is right then.
func isRight(verdicts []verdict) bool {
	return !slices.ContainsFunc(verdicts, func(v verdict) bool { return v.Verdict == wrong })
}

// sameMistakes reports whether two signatures are wrong for the same reason.
func sameMistakes(a, b verdict) bool {
	sameName := func(a, b diagnosis.Mistake) bool { return a.Name == b.Name }
	return len(a.Mistakes) > 0 && slices.EqualFunc(a.Mistakes, b.Mistakes, sameName)
}
