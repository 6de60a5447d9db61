// Package diagnosis owns the explanations of wrong signatures. It does not decide whether a signature is valid: dispatch/signature
// does.
//
// It knows the mistakes that people make: the receiver does not use the raw body, has another secret, or lacks a header. It undoes one
// of them at a time and asks dispatch/signature again. A mistake is proved if undoing it alone makes the signature match
// (undo.go). If no mistake is proved, it guesses from the headers, the secret and the body (guess.go).
package diagnosis

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// Scheme is one of the two ways in which a delivery is signed.
type Scheme string

// The schemes, in the order of the results.
const (
	Hex      Scheme = "hex"      // X-Service-Signature
	Standard Scheme = "standard" // webhook-signature, as in Standard Webhooks
)

// Delivery is a request that a receiver got, with the settings of that receiver. Header, Body, Secret and Now must be set.
type Delivery struct {
	Header       http.Header
	Body         []byte
	Secret       string
	HeaderPrefix string        // "" is X-Service
	Now          time.Time     // by the receiver's clock
	Tolerance    time.Duration // 0 is five minutes
}

// Mistake is one thing that is wrong, and how to fix it. No text of it contains a secret.
type Mistake struct {
	Name   string `json:"name"` // short and stable, such as body_reserialized
	What   string `json:"what"`
	Advice string `json:"advice"`
	Proved bool   `json:"proved"` // undoing this one change makes the signature match; otherwise it is a guess
}

// The verdicts on a signature.
const (
	Right = "right"
	Wrong = "wrong"
)

// Result is the result for one scheme.
type Result struct {
	Scheme   Scheme    `json:"scheme"`
	Header   string    `json:"header"`             // name of the header with the signature
	Verdict  string    `json:"verdict"`            // Right or Wrong; Wrong for a right signature that is too old or too new
	Err      error     `json:"-"`                  // of dispatch/signature; nil if Verdict is Right
	Text     string    `json:"error,omitempty"`    // of Err
	Mistakes []Mistake `json:"mistakes,omitempty"` // at least one if Verdict is Wrong
}

// Check checks a delivery in both schemes.
func Check(d Delivery) []Result {
	results := []Result{d.check(Hex), d.check(Standard)}
	for i := range results {
		if v := &results[i]; v.Err != nil && len(v.Mistakes) == 0 {
			v.Mistakes = d.guess(v.Scheme, v.Err, matches(results[1-i].Err))
		}
	}
	return results
}

// check checks one scheme. The result has no mistake yet if none is proved.
func (d Delivery) check(scheme Scheme) Result {
	v := Result{Scheme: scheme, Header: d.names(scheme).signature, Verdict: Right, Err: d.verify(scheme)}
	if v.Err == nil {
		return v
	}
	v.Verdict, v.Text = Wrong, v.Err.Error()
	switch {
	case matches(v.Err):
		v.Mistakes = []Mistake{d.clock(scheme)}
	case !errors.Is(v.Err, signature.ErrMissing):
		v.Mistakes = d.prove(scheme)
	}
	return v
}

// matches reports whether the signature itself is right, even if it is too old or too new.
func matches(err error) bool {
	return err == nil || errors.Is(err, signature.ErrTooOld) || errors.Is(err, signature.ErrTooNew)
}

func (d Delivery) verify(scheme Scheme) error {
	v := signature.Verifier{Secrets: []string{d.Secret}, HeaderPrefix: d.HeaderPrefix, Tolerance: d.Tolerance}
	if scheme == Hex {
		return v.Verify(d.Header, d.Body, d.Now)
	}
	return v.VerifyStandard(d.Header, d.Body, d.Now)
}

// withSignature returns the delivery with another signature. Programs write a Standard Webhooks signature with or without its "v1,".
func (d Delivery) withSignature(scheme Scheme, text string) Delivery {
	d.Header = d.Header.Clone()
	if scheme == Standard && !strings.HasPrefix(text, standardVersion) {
		text = standardVersion + text
	}
	d.Header.Set(d.names(scheme).signature, text)
	d.Header.Del(d.prefix() + "-Signature-Previous")
	return d
}

// standardVersion begins a signature of Standard Webhooks.
const standardVersion = "v1,"

func (d Delivery) prefix() string { return cmp.Or(d.HeaderPrefix, signature.DefaultHeaderPrefix) }

// names are the headers of a scheme.
type names struct{ signature, timestamp, id string }

func (d Delivery) names(scheme Scheme) names {
	if scheme == Standard {
		return names{"webhook-signature", "webhook-timestamp", "webhook-id"}
	}
	return names{d.prefix() + "-Signature", d.prefix() + "-Timestamp", d.prefix() + "-Event-Id"}
}

// clock explains a right signature whose timestamp is too old or too new.
func (d Delivery) clock(scheme Scheme) Mistake {
	seconds, _ := strconv.ParseInt(d.Header.Get(d.names(scheme).timestamp), 10, 64) // the verifier has read it before
	sent := time.Unix(seconds, 0)
	off := d.Now.Sub(sent).Round(time.Second)
	m := Mistake{
		Name: "clock_ahead", Proved: true,
		Advice: "If you saved the delivery, check it at its own time: keyhook verify --at sent. If it has just arrived, compare the receiver's clock with `date -u` on another machine, and use NTP. If the clock is right, somebody delayed or repeated the request.",
	}
	side := "before"
	if off < 0 {
		m.Name, side, off = "clock_behind", "after", -off
		m.Advice = "The receiver's clock is behind, or the sender's clock is ahead. Compare both with `date -u`, and use NTP. To leave the clocks out, use keyhook verify --at sent."
	}
	m.What = fmt.Sprintf("The signature is right, but its timestamp, %s, is %d seconds %s the receiver's clock, %s. The limit is %s.",
		utc(sent), int64(off.Seconds()), side, utc(d.Now), cmp.Or(d.Tolerance, signature.DefaultTolerance))
	return m
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
