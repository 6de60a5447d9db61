package diagnosis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
)

// guess names likely mistakes if none is proved. otherMatches says that the signature of the other scheme is right.
func (d Delivery) guess(scheme Scheme, err error, otherMatches bool) []Mistake {
	name := d.names(scheme)
	switch {
	case errors.Is(err, signature.ErrMissing):
		return []Mistake{d.guessMissing(scheme, otherMatches)}
	case errors.Is(err, signature.ErrMalformed):
		text := err.Error()
		return []Mistake{{Name: "header_malformed", What: strings.ToUpper(text[:1]) + text[1:] + ".", Advice: fmt.Sprintf(
			"%s is one number, Unix seconds. %s Each header may occur once.", name.timestamp, scheme.writing())}}
	case otherMatches:
		names := name.signature + " or " + name.timestamp
		if scheme == Standard {
			names = "webhook-id, " + names
		}
		return []Mistake{{Name: "header_altered", What: "The other signature is right, so the secret and the body are right. One of these headers was changed: " + names + ".",
			Advice: "Find the program that writes or changes these headers."}}
	}
	return d.guessContent(scheme)
}

// secretForm is the form of the secrets that Keyhook makes.
var secretForm = regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`)

// guessContent looks at the secret and the body.
func (d Delivery) guessContent(scheme Scheme) (found []Mistake) {
	add := func(is bool, name, what, advice string) {
		if is {
			found = append(found, Mistake{Name: name, What: what, Advice: advice})
		}
	}
	var event struct {
		ID string `json:"id"`
	}
	name := d.names(scheme).id
	isEvent, id := json.Unmarshal(d.Body, &event) == nil && event.ID != "", d.Header.Get(name)
	add(!secretForm.MatchString(d.Secret), "secret_form", `The secret does not look like a signing secret of Keyhook: "whsec_" and 44 characters of base64.`,
		"Use the complete secret that the creation or the last rotation showed. An API key is not a signing secret.")
	add(isEvent && id != "" && event.ID != id, "body_of_another_event",
		fmt.Sprintf("The body belongs to event %s, but %s is %s.", output.Quote(event.ID), name, output.Quote(id)),
		"Use the headers and the body of the same request.")
	add(isRewritten(d.Body), "body_reserialized", `The JSON was parsed and written again. Keyhook sends an event without white space and with "id" first.`, rawAdvice)
	add(len(d.Body) == 0, "body_empty", "The body is empty.", readBeforeAdvice)
	add(len(d.Body) > 0 && !json.Valid(d.Body), "body_not_json",
		"The body is not valid JSON. Each delivery is valid JSON, so this body was cut off or changed.", rawAdvice)
	add(len(found) == 0, "secret_wrong", "The secret probably belongs to another subscription, or is older than the last rotation. No other known mistake explains this signature.",
		"Compare the secret with the secret that \"keyhook subscriptions create\" showed, or rotate the secret. After a rotation, the old secret signs too for one day. If the secret is the same, the body was changed: compare the body with the event that was sent.")
	return found
}

// isRewritten reports whether the body is an event that Keyhook would have written in another way.
func isRewritten(body []byte) bool {
	sent := inOrderSent(body)
	var compact bytes.Buffer
	return sent != nil && json.Compact(&compact, sent) == nil && !bytes.Equal(compact.Bytes(), body)
}

// guessMissing looks for a header that may be the missing one under another name.
func (d Delivery) guessMissing(scheme Scheme, otherMatches bool) Mistake {
	n := d.names(scheme)
	name := n.signature // or the header that the verifier misses first
	if scheme == Standard && d.Header.Get(n.id) == "" {
		name = n.id
	} else if d.Header.Get(n.timestamp) == "" {
		name = n.timestamp
	}
	for _, other := range slices.Sorted(maps.Keys(d.Header)) {
		plain := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(other), "_", "-"), "http-")
		what := fmt.Sprintf("%s is missing, but %s is present.", name, output.Quote(other))
		switch {
		case strings.EqualFold(other, name): // present and empty
		case plain == strings.ToLower(name):
			return Mistake{Name: "header_renamed", What: what, Advice: "CGI and WSGI rename headers in this way. Read the headers with your framework, or rename them back."}
		case scheme == Hex && strings.HasSuffix(plain, "-signature") && plain != "webhook-signature" && plain != strings.ToLower(n.signature):
			return Mistake{Name: "header_prefix", What: what, Advice: "The operator has set webhooks.header_prefix. Set the same prefix here and in the receiver."}
		}
	}
	advice := "Every delivery has this header. Check the proxies in front of the receiver, because some forward only the headers in their settings."
	if otherMatches {
		advice += " The other signature is right, and one right signature is enough."
	}
	return Mistake{Name: "header_missing", What: name + " is missing.", Advice: advice}
}
