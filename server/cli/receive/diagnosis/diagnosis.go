// Package diagnosis owns the reasons why a signature does not hold: it tries one known mistake after the other until the
// signature comes out right, and so names the one that was made. It does not decide what is genuine: dispatch/signature
// does, and nothing that it refuses becomes right by having been explained.
//
// A signature is made of a secret, a key derived from it, a message, a body and a method, and is then written down. Each
// of these has a table of what goes wrong with it (secret.go, key.go, message.go, body.go, method.go, written.go). The
// search walks through their combinations, those with the fewest mistakes first. What it finds is proved, since no other
// combination has that signature. Where it finds nothing, circumstances are looked at (hint.go).
package diagnosis

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// Scheme is one of the two ways in which a delivery is signed.
type Scheme string

// The schemes, in the order of the verdicts.
const (
	Hex      Scheme = "hex"      // X-Service-Signature
	Standard Scheme = "standard" // webhook-signature, as Standard Webhooks has it
)

// Delivery is what a receiver got, and what it is judged by. Header, Body and Now must be set.
type Delivery struct {
	Header       http.Header
	Body         []byte
	Secret       string        // "" if there is none: then nothing can be judged
	Previous     string        // another secret that it may have been signed with; "" if there is none
	HeaderPrefix string        // "" is X-Service
	Now          time.Time     // by the clock of the receiver
	Tolerance    time.Duration // 0 is five minutes
}

// Mistake is one thing that is wrong, in words for whoever has to mend it. No text of it holds a secret.
type Mistake struct {
	Name   string // short and stable, such as body_reserialized
	What   string // what is wrong
	Advice string // what mends it
	Proved bool   // undone, it gives the signature. Otherwise it is a guess from the circumstances.
}

// Verdict is what there is to say of one scheme.
type Verdict struct {
	Scheme   Scheme
	Header   string    // the name of the header with the signature
	Err      error     // as dispatch/signature gives it; nil where the signature is right and in time
	Previous bool      // it is right, but only by the secret before the last rotation
	Mistakes []Mistake // where Err is not nil: what to mend, which all together explain it; at least one
}

// Judge judges a delivery by both schemes. It takes milliseconds where a body is small and a signature wrong, and up to a
// second where it is as large as an event may be.
func Judge(d Delivery) []Verdict {
	verdicts := []Verdict{d.judge(Hex), d.judge(Standard)}
	for i := range verdicts {
		if v := &verdicts[i]; v.Err != nil && len(v.Mistakes) == 0 {
			v.Mistakes = d.guess(v.Scheme, v.Err, verdicts[1-i].Err == nil)
		}
	}
	return verdicts
}

// judge judges by one scheme. Where nothing is proved, the verdict has no mistake yet.
func (d Delivery) judge(scheme Scheme) Verdict {
	v := Verdict{Scheme: scheme, Header: d.signatureHeader(scheme)}
	v.Err = d.verify(scheme, d.Header)
	switch {
	case v.Err == nil:
		v.Previous = d.isPrevious(scheme)
	case errors.Is(v.Err, signature.ErrTooOld), errors.Is(v.Err, signature.ErrTooNew):
		v.Mistakes = []Mistake{d.clock(scheme)}
	case errors.Is(v.Err, signature.ErrMissing): // there is no need to search
	default:
		v.Mistakes, _ = d.search(scheme, d.written(scheme))
	}
	return v
}

// Explain says how code that was to compute the signature of this delivery came to the given one instead, in the scheme
// for which that takes fewer mistakes; none means that it is the right one. ok is false where nothing explains it.
func (d Delivery) Explain(computed string) (scheme Scheme, mistakes []Mistake, ok bool) {
	for _, s := range []Scheme{Hex, Standard} {
		if m, found := d.search(s, readWritten(s, computed)); found && (!ok || len(m) < len(mistakes)) {
			scheme, mistakes, ok = s, m, true
		}
	}
	return scheme, mistakes, ok
}

func (d Delivery) verify(scheme Scheme, header http.Header) error {
	v := signature.Verifier{Secrets: []string{d.Secret}, HeaderPrefix: d.HeaderPrefix, Tolerance: d.Tolerance}
	if scheme == Hex {
		return v.Verify(header, d.Body, d.Now)
	}
	return v.VerifyStandard(header, d.Body, d.Now)
}

// isPrevious reports whether a delivery that is right would not be without the signature by the secret before: the sender
// writes the one by the present secret first.
func (d Delivery) isPrevious(scheme Scheme) bool {
	header := d.Header.Clone()
	header.Del(d.prefix() + "-Signature-Previous")
	if list := header.Get("webhook-signature"); scheme == Standard {
		first, _, _ := strings.Cut(list, " ")
		header.Set("webhook-signature", first)
	}
	return d.verify(scheme, header) != nil
}

func (d Delivery) prefix() string { return cmp.Or(d.HeaderPrefix, signature.DefaultHeaderPrefix) }

// The names of the headers of a scheme.

func (d Delivery) signatureHeader(scheme Scheme) string {
	if scheme == Hex {
		return d.prefix() + "-Signature"
	}
	return "webhook-signature"
}

func (d Delivery) timestampHeader(scheme Scheme) string {
	if scheme == Hex {
		return d.prefix() + "-Timestamp"
	}
	return "webhook-timestamp"
}

func (d Delivery) idHeader(scheme Scheme) string {
	if scheme == Hex {
		return d.prefix() + "-Event-Id"
	}
	return "webhook-id"
}

// clock explains a signature that is right and not in time.
func (d Delivery) clock(scheme Scheme) Mistake {
	sent, _ := seconds(d.Header.Get(d.timestampHeader(scheme))) // it has been read before
	at, off := time.Unix(sent, 0), d.Now.Sub(time.Unix(sent, 0)).Round(time.Second)
	tolerance := cmp.Or(d.Tolerance, signature.DefaultTolerance)
	if off > 0 {
		return Mistake{"clock_ahead", fmt.Sprintf("The signature is right, but its timestamp, %s, is %d seconds before the receiver's clock, %s; %s are allowed.",
			utc(at), int64(off.Seconds()), utc(d.Now), tolerance),
			"If it was saved, judge it by its own time. If it has only just arrived, either the receiver's clock is ahead by that much (compare it with `date -u` elsewhere, and let it follow NTP), or somebody held it up or sent it again, which is what the limit is for.", true}
	}
	return Mistake{"clock_behind", fmt.Sprintf("The signature is right, but its timestamp, %s, is %d seconds after the receiver's clock, %s; %s are allowed.",
		utc(at), int64(-off.Seconds()), utc(d.Now), tolerance),
		"The receiver's clock is behind by that much, or the sender's is ahead: compare both with `date -u`, and let them follow NTP.", true}
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
