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

// signatureResult is the result for one scheme, as the commands print it.
type signatureResult struct {
	Scheme   string              `json:"scheme"`
	Header   string              `json:"header"`
	Result   string              `json:"verdict"`
	Previous bool                `json:"by_previous_secret,omitempty"`
	Error    string              `json:"error,omitempty"`
	Mistakes []diagnosis.Mistake `json:"mistakes,omitempty"`
}

// checkSignatures checks a delivery in both schemes.
func checkSignatures(d diagnosis.Delivery) []signatureResult {
	checked := diagnosis.Check(d)
	var all []signatureResult
	for i, j := range checked {
		v := signatureResult{Scheme: string(j.Scheme), Header: j.Header, Result: right, Previous: j.Previous}
		isAbsent := errors.Is(j.Err, signature.ErrMissing) && d.Header.Get(j.Header) == ""
		switch {
		case isAbsent && d.Header.Get(checked[1-i].Header) != "":
			v.Result = absent
		case j.Err != nil:
			v.Result, v.Error, v.Mistakes = wrong, j.Err.Error(), j.Mistakes
		}
		all = append(all, v)
	}
	return all
}

// isRight reports whether no signature is wrong. At least one is right then.
func isRight(results []signatureResult) bool {
	return !slices.ContainsFunc(results, func(v signatureResult) bool { return v.Result == wrong })
}

// sameMistakes reports whether two signatures are wrong for the same reason.
func sameMistakes(a, b signatureResult) bool {
	sameName := func(a, b diagnosis.Mistake) bool { return a.Name == b.Name }
	return len(a.Mistakes) > 0 && slices.EqualFunc(a.Mistakes, b.Mistakes, sameName)
}
