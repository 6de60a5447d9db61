package diagnosis

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/webhook"
)

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
	names := []string{"id", "type", "timestamp", "organization_id", "data"}
	if json.Unmarshal(text, &event) != nil || len(event) != len(names) {
		return nil
	}
	var members []string
	for _, name := range names {
		members = append(members, `"`+name+`":`+string(event[name]))
	}
	return form.Rewrite([]byte("{"+strings.Join(members, ",")+"}"), form.Layout{Escapes: true}) // nil if a member is missing
}
