package diagnosis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/access"
)

// bodyID is the id of the event in the body; empty where there is none.
func (d Delivery) bodyID() string {
	var event struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(d.Body, &event) // what is no event has no id
	return event.ID
}

// guess goes by circumstances where no combination of known mistakes gives the signature. otherHolds says that the
// other scheme's signature is right.
func (d Delivery) guess(scheme Scheme, err error, otherHolds bool) []Mistake {
	if errors.Is(err, signature.ErrMissing) || errors.Is(err, signature.ErrMalformed) {
		return []Mistake{d.guessHeader(scheme, err, otherHolds)}
	}
	var found []Mistake
	add := func(is bool, name, what, advice string) {
		if is {
			found = append(found, Mistake{Name: name, What: what, Advice: advice})
		}
	}
	if otherHolds {
		add(true, "header_altered", "The other signature is right, so the secret, the body and the clock are; what differs is "+d.headersOf(scheme)+".",
			"Find what writes or rewrites these headers on their way.")
		return found
	}
	d.guessSecret(add)
	d.guessBody(scheme, add)
	if len(found) == 0 {
		add(true, "unknown", "None of the known mistakes gives this signature.",
			"Most likely the secret is that of another subscription or from before a rotation, or the body is not the one that was sent. Compare the secret with the one shown at creation, or rotate it: the old one signs beside the new one for a day.")
	}
	return found
}

// headersOf names what a scheme is made of.
func (d Delivery) headersOf(scheme Scheme) string {
	if scheme == Hex {
		return d.signatureHeader(scheme) + " or " + d.timestampHeader(scheme)
	}
	return "webhook-id, webhook-timestamp or webhook-signature"
}

var secretForm = regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`)

func (d Delivery) guessSecret(add func(is bool, name, what, advice string)) {
	s := d.Secret
	const advice = "Use the signing secret of the subscription, which creating it and rotating its secret showed."
	switch {
	case s == "":
		add(true, "secret_not_set", "The secret is empty.", advice)
	case strings.HasPrefix(s, access.DefaultKeyPrefix+"_") || strings.HasPrefix(s, access.TokenPrefix+"_"):
		add(true, "secret_is_a_key", "The secret given is an API key or an access token.", advice)
	case strings.Contains(s, "…") || strings.Contains(s, "..."):
		add(true, "secret_shortened", "The secret given was shortened for display.", advice)
	case !secretForm.MatchString(s):
		add(true, "secret_form", `The secret given does not look like one: those that Keyhook makes are "whsec_" and 44 characters of base64.`, advice)
	}
}

func (d Delivery) guessBody(scheme Scheme, add func(is bool, name, what, advice string)) {
	id, header := d.bodyID(), d.Header.Get(d.idHeader(scheme))
	add(id != "" && header != "" && id != header, "body_of_another_event",
		fmt.Sprintf("The body is that of %s, and %s says %s.", printable(id), d.idHeader(scheme), printable(header)),
		"Take headers and body from the same request.")
	add(isRewritten(d.Body), "body_reserialized", "The body is an event, but not as it is sent: without white space between its parts, and with \"id\" first. It was parsed and written again.", rawAdvice)
	if said, err := strconv.Atoi(d.Header.Get("Content-Length")); err == nil && said != len(d.Body) {
		add(true, "body_length", fmt.Sprintf("The body has %d bytes, and Content-Length says %d.", len(d.Body), said),
			"It was cut off, or something was added or rewritten. "+rawAdvice)
	}
	switch {
	case len(d.Body) == 0:
		add(true, "body_empty", "The body is empty.", "Something had read it before, and a body can be read once: keep its bytes. "+rawAdvice)
	case bytes.Contains(d.Body, []byte("\ufffd")):
		add(true, "body_bytes_lost", "The body holds U+FFFD, which decoders put in the place of what they cannot read.", charsetAdvice)
	case !json.Valid(d.Body):
		add(true, "body_not_json", "The body is no valid JSON, and every delivery is: it was cut off, or changed.", rawAdvice)
	}
}

// isRewritten reports whether a body is an event that the sender would have written in another way.
func isRewritten(body []byte) bool {
	sent := inOrderSent(body)
	if sent == nil {
		return false
	}
	var compact bytes.Buffer
	return json.Compact(&compact, sent) == nil && !bytes.Equal(compact.Bytes(), body)
}

// guessHeader looks for what became of headers that are not there, or cannot be read.
func (d Delivery) guessHeader(scheme Scheme, err error, otherHolds bool) Mistake {
	if errors.Is(err, signature.ErrMalformed) {
		what := err.Error()
		if stamp := d.Header.Get(d.timestampHeader(scheme)); len(stamp) == 13 {
			return Mistake{Name: "timestamp_milliseconds", What: d.timestampHeader(scheme) + " holds milliseconds.", Advice: d.headerForms(scheme)}
		}
		return Mistake{Name: "header_malformed", What: strings.ToUpper(what[:1]) + what[1:] + ".", Advice: d.headerForms(scheme)}
	}
	_, name, _ := strings.Cut(err.Error(), ": ")
	for _, other := range sortedNames(d.Header) {
		if strings.EqualFold(other, name) { // it is there, and empty
			continue
		}
		switch plain := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(other), "_", "-"), "http-"); {
		case scheme == Hex && strings.HasSuffix(plain, "-signature") && plain != "webhook-signature" && plain != strings.ToLower(d.signatureHeader(Hex)):
			return Mistake{Name: "header_prefix", What: fmt.Sprintf("%s is missing, and %s is there.", name, printable(other)),
				Advice: "The operator has set webhooks.header_prefix: look for the headers that begin as this one does."}
		case plain == strings.ToLower(name):
			return Mistake{Name: "header_renamed", What: fmt.Sprintf("%s is missing, and %s is there.", name, printable(other)),
				Advice: "It is the same header as CGI and WSGI name it: ask the framework for its headers, or translate the names back."}
		}
	}
	advice := "Every delivery has it. Look at what passes requests on: proxies and gateways forward only the headers that they are told to."
	if otherHolds {
		advice += " The other signature is right; one of the two is enough."
	}
	return Mistake{Name: "header_missing", What: name + " is missing.", Advice: advice}
}

func (d Delivery) headerForms(scheme Scheme) string {
	return fmt.Sprintf("%s is one number, Unix seconds. %s No header may be there twice.", d.timestampHeader(scheme), scheme.writing())
}

func sortedNames(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

const maxPrinted = 100 // characters

// printable quotes a stranger's text where it holds what a terminal might obey.
func printable(text string) string {
	if runes := []rune(text); len(runes) > maxPrinted {
		text = string(runes[:maxPrinted]) + "…"
	}
	return strings.Trim(strconv.QuoteToGraphic(text), `"`)
}
