// Package diagnosis owns the explanations of wrong signatures. It does not decide whether a signature is valid: dispatch/signature does.
//
// It knows the mistakes that people make: the receiver does not use the raw body, has another secret, or lacks a header. It undoes one
// of them at a time and asks dispatch/signature again. A mistake is proved if undoing it alone makes the signature match.
// If no mistake is proved, it guesses from the headers, the secret and the body.
package diagnosis

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
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
	"unicode"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/webhook"
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

// try tests a delivery with one mistake undone.
type try func(undone signed, name, what, advice string)

// prove returns the first mistake that alone makes the signature wrong, or none.
func (s signed) prove() (found []Mistake) {
	test := func(undone signed, name, what, advice string) {
		if found == nil && undone.matches() {
			found = []Mistake{{name, what, advice, true}}
		}
	}
	s.undoSecret(test)
	s.undoWriting(test)
	s.undoBody(test)
	if found == nil {
		s.undoRewriting(test) // the only expensive one
	}
	return found
}

// undoSecret undoes mistakes with the secret, of the person who gave it here or of the program that signed.
func (s signed) undoSecret(test try) {
	secret := s.Secret
	with := func(undone, name, what, advice string) {
		s.Secret = undone
		test(s, name, what, advice)
	}
	const space = "Remove the white space when you read the secret, for example with strings.TrimSpace."
	const quotes = "Remove the quotes, which are not a part of the secret. Some readers of .env files, and docker --env-file, keep the quotes."
	trimmed := strings.TrimSpace(secret)
	bare := strings.TrimPrefix(secret, webhook.SecretPrefix)
	with(trimmed, "secret_with_space", "The secret has white space around it, such as the line break at the end of a file.", space)
	with(secret+"\n", "secret_with_space", "The key of the signature has a line break at its end. The secret has none.", space)
	with(strings.Trim(trimmed, `"'`), "secret_with_quotes", "The secret has quotes around it.", quotes)
	with(`"`+secret+`"`, "secret_with_quotes", "The key of the signature has quotes around it. The secret has none.", quotes)
	if s.scheme == Hex {
		const whole = `In this scheme, the key is the complete text of the secret, with "whsec_" and not decoded.`
		with(webhook.SecretPrefix+bare, "secret_without_prefix", `The secret lacks its prefix "whsec_".`, whole)
		with(bare, "secret_without_prefix", `The key of the signature is the secret without its prefix "whsec_".`, whole)
		key, _ := base64.StdEncoding.DecodeString(bare) // no signature matches an empty key
		with(string(key), "secret_decoded", `The key of the signature is the text after "whsec_", decoded as base64.`, whole)
		return
	}
	const decoded = `In Standard Webhooks, the key is the text after "whsec_", decoded as base64.`
	for _, text := range []string{webhook.SecretPrefix + bare, bare} {
		with(webhook.SecretPrefix+base64.StdEncoding.EncodeToString([]byte(text)), "secret_not_decoded", "The key of the signature is the text of the secret, not decoded.", decoded)
	}
}

// undoWriting undoes mistakes in writing the signature. Programs write a Standard Webhooks signature with or without its "v1,". What
// makes sense in one scheme only proves nothing in the other.
func (s signed) undoWriting(test try) {
	header := s.Header
	for _, text := range header.Values(s.signature) {
		with := func(other, name, what string) {
			if s.scheme == Standard {
				other = standardVersion + strings.TrimPrefix(other, standardVersion)
			}
			if other == text {
				return // nothing is undone, and the mistake is in another header
			}
			s.Header = header.Clone()
			s.Header.Set(s.signature, other)
			s.Header.Del(s.HeaderPrefix + "-Signature-Previous")
			test(s, name, what, s.writing)
		}
		with(text, "signature_label", `The signature lacks the "v1," before it.`)
		for _, label := range []string{standardVersion, "sha256=", "v1="} {
			with(strings.TrimPrefix(text, label), "signature_label", `The signature has the label "`+label+`" before it.`)
		}
		with(strings.ToLower(text), "signature_upper_case", "The hex digits of the signature are upper case.")
		if sum, err := base64.StdEncoding.DecodeString(text); err == nil {
			with(hex.EncodeToString(sum), "signature_in_base64", "The signature is written in base64.")
		}
		if sum, err := hex.DecodeString(strings.TrimPrefix(text, standardVersion)); err == nil {
			with(base64.StdEncoding.EncodeToString(sum), "signature_in_hex", "The signature is written in hex.")
		}
	}
}

const (
	standardVersion = "v1," // begins a signature of Standard Webhooks

	rawAdvice        = "Check the raw bytes of the request before anything parses them: io.ReadAll(r.Body) in Go, express.raw() in Express, request.get_data() in Flask, request.body in Django, file_get_contents('php://input') in PHP."
	readBeforeAdvice = "Another part of the program has read the body before. A body can be read only once, so keep the bytes. " + rawAdvice

	newlineAdvice = "Keep the body as bytes. Editors, echo and terminals add line breaks. With curl, use --data-binary instead of --data."
)

// undoBody undoes small changes of the body.
func (s signed) undoBody(test try) {
	b := s.Body
	with := func(body []byte, name, what, advice string) {
		s.Body = body
		test(s, name, what, advice)
	}
	const added = "The body ends with a line break that was not signed."
	with(bytes.TrimSuffix(b, []byte("\n")), "body_newline_added", added, newlineAdvice)
	with(bytes.TrimSuffix(b, []byte("\r\n")), "body_newline_added", added, newlineAdvice)
	with(bytes.TrimSpace(b), "body_newline_added", "The body has white space around it that was not signed.", newlineAdvice)
	with(slices.Concat(b, []byte("\n")), "body_newline_removed", "A line break at the end of the body was signed. This body has none.", newlineAdvice)
	with(nil, "body_empty", "An empty body was signed.", readBeforeAdvice)
}

// undoRewriting writes the JSON of the body as programs do that parse it and write it again. Numbers stay as they are.
func (s signed) undoRewriting(test try) {
	original := s.Body
	isASCII := func(r rune) bool { return r <= unicode.MaxASCII }
	const what = "The JSON was parsed and written again. The signature is over the same JSON, written in another way."
	sorted := form.Rewrite(original, form.Layout{Sorted: true, Escapes: true})
	for _, text := range [][]byte{original, inOrderSent(original), sorted} {
		for _, layout := range []form.Layout{
			{},             // JSON.stringify, json.Marshal, Keyhook
			{Spaced: true}, // json.dumps
			{Indented: true},
		} {
			for _, layout.Escapes = range []bool{true, false} {
				s.Body = form.Rewrite(text, layout)
				test(s, "body_reserialized", what, rawAdvice)
				s.Body = []byte(output.EscapeJSON(string(s.Body), isASCII)) // as json.dumps does
				test(s, "body_reserialized", what, rawAdvice)
			}
		}
	}
}

// inOrderSent writes an event as Keyhook sends it: without white space, and its members in this order. It returns nil for other JSON.
func inOrderSent(text []byte) []byte {
	var event map[string]json.RawMessage
	_ = json.Unmarshal(text, &event)                                                // other JSON has no members
	names := []string{"id", "type", "timestamp", "organization_id", "test", "data"} // only a test has "test"
	names = slices.DeleteFunc(names, func(name string) bool { return event[name] == nil })
	if len(names) < 5 || len(event) != len(names) {
		return nil
	}
	var members []string
	for _, name := range names {
		members = append(members, `"`+name+`":`+string(event[name]))
	}
	return form.Rewrite([]byte("{"+strings.Join(members, ",")+"}"), form.Layout{Escapes: true})
}
