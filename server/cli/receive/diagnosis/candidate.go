package diagnosis

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// candidate is the delivery with one mistake undone.
type candidate struct {
	delivery Delivery
	mistake  Mistake
}

// prove returns the mistake that alone makes the signature wrong.
func (d Delivery) prove(scheme Scheme) (Mistake, bool) {
	for _, candidates := range []func(Scheme) []candidate{d.secrets, d.signatures, d.bodies, d.rewrittenBodies} {
		for _, c := range candidates(scheme) {
			if matches(c.delivery.verify(scheme)) {
				c.mistake.Proved = true
				return c.mistake, true
			}
		}
	}
	return Mistake{}, false
}

func (d Delivery) withSecret(secret string) Delivery {
	d.Secret = secret
	return d
}

func (d Delivery) withBody(body []byte) Delivery {
	d.Body = body
	return d
}

// secretPrefix begins a signing secret.
const secretPrefix = "whsec_"

// secrets undoes mistakes with the secret, of the person who gave it here or of the program that signed.
func (d Delivery) secrets(scheme Scheme) []candidate {
	var all []candidate
	add := func(secret, name, what, advice string) {
		if secret != "" && secret != d.Secret {
			all = append(all, candidate{d.withSecret(secret), Mistake{Name: name, What: what, Advice: advice}})
		}
	}
	const rotated = "If the secret was rotated, use the new one that the rotation showed. Otherwise the two secrets belong to two subscriptions."
	const space = "Remove the white space when you read the secret, for example with strings.TrimSpace."
	const quotes = "The quotes belong to the file or the shell, not to the secret. Some readers of .env files and docker's --env-file keep them."
	s := d.Secret
	trimmed := strings.TrimSpace(s)
	bare := strings.TrimPrefix(s, secretPrefix)
	add(d.Previous, "secret_replaced", "The other secret signed this delivery.", rotated)
	add(trimmed, "secret_with_space", "The secret has white space around it, such as the line break at the end of a file.", space)
	add(s+"\n", "secret_with_space", "The key of the signature has a line break at its end. The secret has none.", space)
	add(strings.Trim(trimmed, `"'`), "secret_with_quotes", "The secret has quotes around it.", quotes)
	add(`"`+s+`"`, "secret_with_quotes", "The key of the signature has quotes around it. The secret has none.", quotes)
	if scheme == Hex {
		const whole = `In this scheme, the key is the whole text of the secret. It includes "whsec_" and is not decoded.`
		add(secretPrefix+bare, "secret_without_prefix", `The secret lacks its prefix "whsec_".`, whole)
		add(bare, "secret_without_prefix", `The key of the signature is the secret without its prefix "whsec_".`, whole)
		key, _ := base64.StdEncoding.DecodeString(bare) // an empty key is no candidate
		add(string(key), "secret_decoded", `The key of the signature is the text after "whsec_", decoded as base64.`, whole)
		return all
	}
	const decoded = `In Standard Webhooks, the key is the text after "whsec_", decoded as base64.`
	for _, text := range []string{secretPrefix + bare, bare} {
		add(secretPrefix+base64.StdEncoding.EncodeToString([]byte(text)), "secret_not_decoded", "The key of the signature is the text of the secret, not decoded.", decoded)
	}
	return all
}

// signatures undoes mistakes in writing the signature.
func (d Delivery) signatures(scheme Scheme) []candidate {
	var all []candidate
	add := func(text, name, what string) {
		all = append(all, candidate{d.withSignature(scheme, text), Mistake{Name: name, What: what, Advice: scheme.writing()}})
	}
	for _, text := range d.Header.Values(d.signatureHeader(scheme)) {
		bare := strings.TrimPrefix(text, standardVersion)
		for _, label := range []string{standardVersion, "sha256=", "v1="} {
			if rest, found := strings.CutPrefix(text, label); found {
				add(rest, "signature_label", `The signature has the label "`+label+`" before it.`)
			}
		}
		if scheme == Hex {
			add(strings.ToLower(text), "signature_upper_case", "The hex digits of the signature are upper case.")
			if sum, err := base64.StdEncoding.DecodeString(text); err == nil {
				add(hex.EncodeToString(sum), "signature_in_base64", "The signature is written in base64.")
			}
			continue
		}
		add(text, "signature_label", `The signature lacks the "v1," before it.`)
		if sum, err := hex.DecodeString(bare); err == nil {
			add(base64.StdEncoding.EncodeToString(sum), "signature_in_hex", "The signature is written in hex.")
		}
	}
	return all
}

// writing says how a signature is written.
func (s Scheme) writing() string {
	if s == Hex {
		return "In this scheme, a signature is 64 lower-case hex digits and nothing else."
	}
	return `In Standard Webhooks, a signature is "v1," and 44 characters of base64. A space separates several signatures.`
}

const (
	rawAdvice     = "Check the raw bytes of the request before anything parses them: io.ReadAll(r.Body) in Go, express.raw() in Express, request.get_data() in Flask, request.body in Django, file_get_contents('php://input') in PHP."
	newlineAdvice = "Keep the body as bytes. Editors, echo and terminals add line breaks. With curl, use --data-binary instead of --data."
)

// bodies undoes small changes of the body.
func (d Delivery) bodies(Scheme) []candidate {
	var all []candidate
	add := func(body []byte, name, what, advice string) {
		if !bytes.Equal(body, d.Body) {
			all = append(all, candidate{d.withBody(body), Mistake{Name: name, What: what, Advice: advice}})
		}
	}
	const added = "The body ends with a line break that was not signed."
	add(bytes.TrimSuffix(d.Body, []byte("\n")), "body_newline_added", added, newlineAdvice)
	add(bytes.TrimSuffix(d.Body, []byte("\r\n")), "body_newline_added", added, newlineAdvice)
	add(bytes.TrimSpace(d.Body), "body_newline_added", "The body has white space around it that was not signed.", newlineAdvice)
	add(slices.Concat(d.Body, []byte("\n")), "body_newline_removed", "A line break at the end of the body was signed. This body has none.", newlineAdvice)
	add(nil, "body_empty", "An empty body was signed.", "Something read the body of the request before. A body can be read once: keep its bytes. "+rawAdvice)
	return all
}
