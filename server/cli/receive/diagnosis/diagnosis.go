// Package diagnosis owns the explanations of wrong signatures. It does not decide whether a signature is valid: dispatch/signature
// does.
//
// It knows the mistakes that people make: the receiver does not use the raw body, has another secret, or lacks a header. It undoes one
// of them at a time and asks dispatch/signature again. A mistake is proved if undoing it alone makes the signature match
// (undo.go). If no mistake is proved, it guesses from the headers, the secret and the body.
package diagnosis

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
)

// The schemes, the two ways in which a delivery is signed, in the order of the results.
const (
	Hex      = "hex"      // X-Service-Signature
	Standard = "standard" // webhook-signature, as in Standard Webhooks
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
	Scheme   string    `json:"scheme"`             // Hex or Standard
	Header   string    `json:"header"`             // name of the header with the signature
	Verdict  string    `json:"verdict"`            // Right or Wrong; Wrong for a right signature that is too old or too new
	Err      error     `json:"-"`                  // of dispatch/signature; nil if Verdict is Right
	Text     string    `json:"error,omitempty"`    // of Err
	Mistakes []Mistake `json:"mistakes,omitempty"` // at least one if Verdict is Wrong
}

// Check checks a delivery in both schemes.
func Check(d Delivery) (results []Result) {
	d.HeaderPrefix = cmp.Or(d.HeaderPrefix, signature.DefaultHeaderPrefix)
	d.Tolerance = cmp.Or(d.Tolerance, signature.DefaultTolerance)
	schemes := []signed{{
		d, Hex, d.HeaderPrefix + "-Signature", d.HeaderPrefix + "-Timestamp", d.HeaderPrefix + "-Event-Id", signature.Verifier.Verify,
		"In this scheme, a signature is 64 lower-case hex digits and nothing else.",
	}, {
		d, Standard, "webhook-signature", "webhook-timestamp", "webhook-id", signature.Verifier.VerifyStandard,
		`In Standard Webhooks, a signature is "v1," and 44 characters of base64. A space separates several signatures.`,
	}}
	for i, s := range schemes {
		r := Result{Scheme: s.scheme, Header: s.signature, Verdict: Right, Err: s.verify()}
		if r.Err != nil {
			r.Verdict, r.Text, r.Mistakes = Wrong, r.Err.Error(), s.explain(r.Err, schemes[1-i])
		}
		results = append(results, r)
	}
	return results
}

// signed is a delivery in one of its two schemes.
type signed struct {
	Delivery
	scheme                   string
	signature, timestamp, id string // names of the headers
	verifier                 func(signature.Verifier, http.Header, []byte, time.Time) error
	writing                  string // how a signature is written
}

func (s signed) verify() error {
	return s.verifier(signature.Verifier{Secrets: []string{s.Secret}, HeaderPrefix: s.HeaderPrefix, Tolerance: s.Tolerance}, s.Header, s.Body, s.Now)
}

// matches reports whether the signature itself is right, even if it is too old or too new.
func (s signed) matches() bool {
	err := s.verify()
	return err == nil || errors.Is(err, signature.ErrTooOld) || errors.Is(err, signature.ErrTooNew)
}

// explain returns the proved mistake behind an error. If none is proved, it names likely mistakes. other is the other scheme.
func (s signed) explain(err error, other signed) []Mistake {
	switch {
	case s.matches():
		return []Mistake{s.clock()}
	case errors.Is(err, signature.ErrMissing):
		return []Mistake{s.guessMissing(other)}
	}
	if found := s.prove(); found != nil {
		return found
	}
	switch {
	case errors.Is(err, signature.ErrMalformed):
		text := err.Error()
		return []Mistake{{Name: "header_malformed", What: strings.ToUpper(text[:1]) + text[1:] + ".",
			Advice: fmt.Sprintf("%s is one number, Unix seconds. %s Each header may occur once.", s.timestamp, s.writing)}}
	case other.matches():
		names := s.signature + " or " + s.timestamp
		if s.scheme == Standard {
			names = s.id + ", " + names
		}
		return []Mistake{{Name: "header_altered", What: "The other signature is right, so the secret and the body are right. One of these headers was changed: " + names + ".",
			Advice: "Find the program that writes or changes these headers."}}
	}
	return s.guessContent()
}

// clock explains a right signature whose timestamp is too old or too new.
func (s signed) clock() Mistake {
	seconds, _ := strconv.ParseInt(s.Header.Get(s.timestamp), 10, 64) // the verifier has read it before
	sent := time.Unix(seconds, 0)
	off := s.Now.Sub(sent).Round(time.Second)
	name, side := "clock_ahead", "before"
	advice := "If you saved the delivery, check it at its own time: keyhook verify --at sent. If it has just arrived, compare the receiver's clock with `date -u` on another machine, and use NTP. If the clock is right, somebody delayed or repeated the request."
	if off < 0 {
		name, side = "clock_behind", "after"
		advice = "The receiver's clock is behind, or the sender's clock is ahead. Compare both with `date -u`, and use NTP. To leave the clocks out, use keyhook verify --at sent."
	}
	what := fmt.Sprintf("The signature is right, but its timestamp, %s, is %d seconds %s the receiver's clock, %s. The limit is %s.",
		sent.UTC().Format(time.RFC3339), int64(off.Abs().Seconds()), side, s.Now.UTC().Format(time.RFC3339), s.Tolerance)
	return Mistake{name, what, advice, true}
}

// secretForm is the form of the secrets that Keyhook makes.
var secretForm = regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`)

// guessContent looks at the secret and the body.
func (s signed) guessContent() (found []Mistake) {
	add := func(is bool, name, what, advice string) {
		if is {
			found = append(found, Mistake{Name: name, What: what, Advice: advice})
		}
	}
	var event struct{ ID string }
	isEvent, id := json.Unmarshal(s.Body, &event) == nil && event.ID != "", s.Header.Get(s.id)
	add(!secretForm.MatchString(s.Secret), "secret_form", `The secret does not look like a signing secret of Keyhook: "whsec_" and 44 characters of base64.`,
		"Use the complete secret that the creation or the last rotation showed. An API key is not a signing secret.")
	add(isEvent && id != "" && event.ID != id, "body_of_another_event",
		fmt.Sprintf("The body belongs to event %s, but %s is %s.", output.Quote(event.ID), s.id, output.Quote(id)),
		"Use the headers and the body of the same request.")
	sent := inOrderSent(s.Body)
	add(sent != nil && !bytes.Equal(sent, s.Body), "body_reserialized",
		`The JSON was parsed and written again. Keyhook sends an event without white space and with "id" first.`, rawAdvice)
	add(len(s.Body) == 0, "body_empty", "The body is empty.", readBeforeAdvice)
	add(len(s.Body) > 0 && !json.Valid(s.Body), "body_not_json",
		"The body is not valid JSON. Each delivery is valid JSON, so this body was cut off or changed.", rawAdvice)
	add(len(found) == 0, "secret_wrong", "The secret probably belongs to another subscription, or is older than the last rotation. No other known mistake explains this signature.",
		"Compare the secret with the secret that \"keyhook subscriptions create\" showed, or rotate the secret. After a rotation, the old secret signs too for one day. If the secret is the same, the body was changed: compare the body with the event that was sent.")
	return found
}

// guessMissing looks for a header that may be the missing one under another name.
func (s signed) guessMissing(other signed) Mistake {
	name := s.signature // or the header that the verifier misses first
	if s.scheme == Standard && s.Header.Get(s.id) == "" {
		name = s.id
	} else if s.Header.Get(s.timestamp) == "" {
		name = s.timestamp
	}
	for _, present := range slices.Sorted(maps.Keys(s.Header)) {
		plain := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(present), "_", "-"), "http-")
		what := fmt.Sprintf("%s is missing, but %s is present.", name, output.Quote(present))
		switch {
		case strings.EqualFold(present, name): // present and empty
		case plain == strings.ToLower(name):
			return Mistake{Name: "header_renamed", What: what, Advice: "CGI and WSGI rename headers in this way. Read the headers with your framework, or rename them back."}
		case s.scheme == Hex && strings.HasSuffix(plain, "-signature") && plain != "webhook-signature" && plain != strings.ToLower(s.signature):
			return Mistake{Name: "header_prefix", What: what, Advice: "The operator has set webhooks.header_prefix. Set the same prefix here and in the receiver."}
		}
	}
	advice := "Every delivery has this header. Check the proxies in front of the receiver, because some forward only the headers in their settings."
	if other.matches() {
		advice += " The other signature is right, and one right signature is enough."
	}
	return Mistake{Name: "header_missing", What: name + " is missing.", Advice: advice}
}
