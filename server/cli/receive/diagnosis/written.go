package diagnosis

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
)

// written is a signature as somebody wrote it down, read as far as it goes, and what was wrong with the writing.
type written struct {
	sum      []byte
	cut      bool // there is less of it than there should be
	mistakes []*Mistake
}

// written returns what may be read out of the headers of a scheme.
func (d Delivery) written(scheme Scheme) []written {
	var all []written
	for _, text := range d.Header.Values(d.signatureHeader(scheme)) {
		all = append(all, readWritten(scheme, text)...)
	}
	if scheme == Hex {
		for _, text := range d.Header.Values(d.signatureHeader(scheme) + "-Previous") {
			all = append(all, readWritten(scheme, text)...)
		}
	}
	return all
}

// readWritten reads a signature, or a list of them, in every way that somebody may have meant. It is empty where nobody
// can have.
func readWritten(scheme Scheme, text string) []written {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' })
	var all []written
	if len(parts) > 2 || len(parts) == 2 && parts[0] != "v1" {
		joined := strings.ReplaceAll(strings.TrimPrefix(text, "v1,"), " ", "+") // what a form makes of a plus
		for _, w := range readOne(scheme, joined, strings.HasPrefix(text, "v1,")) {
			all = append(all, w.but("signature_plus_lost", `The signature has spaces where it should have "+".`,
				`It went through a URL or a form, where "+" stands for a space: take it from the header itself.`))
		}
	}
	for _, part := range parts {
		if part != "v1" && part != "v1a" { // cut from what follows by its comma
			all = append(all, readOne(scheme, part, strings.Contains(text, "v1,"+part))...)
		}
	}
	return all
}

// but adds a mistake.
func (w written) but(name, what, advice string) written {
	w.mistakes = append(slices.Clone(w.mistakes), &Mistake{name, what, advice, true})
	return w
}

// labels are what other senders put before a signature.
var labels = []string{"hmac-sha256=", "sha256=", "sha256:", "v1=", "v0=", "s="}

// readOne reads one signature. versioned says that it stood behind "v1,".
func readOne(scheme Scheme, text string, versioned bool) []written {
	var w written
	if decoded, err := url.PathUnescape(text); err == nil && decoded != text {
		text = decoded
		w = w.but("signature_percent_encoded", "The signature is percent-encoded.", "Take it from the header itself, where it is not.")
		if rest, found := strings.CutPrefix(text, "v1,"); found {
			text, versioned = rest, true
		}
	}
	if trimmed := strings.Trim(text, "\"'\t\r\n"); trimmed != text {
		text = trimmed
		w = w.but("signature_quoted", "The signature has quotes or white space around it.", "Write it, and compare it, without them.")
	}
	label := ""
	for _, l := range labels {
		if rest, found := strings.CutPrefix(text, l); found {
			label, text = l, rest
			break
		}
	}
	switch {
	case label != "":
		w = w.but("signature_label", "The signature has the label \""+label+"\" before it.", scheme.writing())
	case versioned && scheme == Hex:
		w = w.but("signature_label", `The signature has "v1," before it.`, scheme.writing())
	case !versioned && scheme == Standard:
		w = w.but("signature_label", `The signature lacks the "v1," before it.`, scheme.writing())
	}
	return w.decode(scheme, text)
}

// writing says how a signature is written.
func (s Scheme) writing() string {
	if s == Hex {
		return "In this scheme a signature is 64 lower-case hex digits and nothing else."
	}
	return `In this scheme a signature is "v1," and 44 characters of base64, and there may be several with a space between them.`
}

// decode reads hex and base64, each of which may also be the other: 64 hex digits are base64 too.
func (w written) decode(scheme Scheme, text string) []written {
	var all []written
	asHex := w
	if strings.ToLower(text) != text {
		asHex = asHex.but("signature_upper_case", "The hex digits of the signature are upper case.", scheme.writing())
	}
	if scheme != Hex {
		asHex = asHex.but("signature_in_hex", "The signature is written in hex.", scheme.writing())
	}
	if sum, err := hex.DecodeString(text[:len(text)&^1]); err == nil {
		all = append(all, asHex.measured(scheme, sum)...)
	}

	asBase64 := w
	canonical := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	switch alphabet, padded := !strings.ContainsAny(text, "-_"), len(text)%4 == 0; {
	case scheme == Hex:
		asBase64 = asBase64.but("signature_in_base64", "The signature is written in base64.", scheme.writing())
	case !alphabet:
		asBase64 = asBase64.but("signature_in_base64url", `The signature is written in the alphabet of URLs, with "-" and "_".`, scheme.writing())
	case !padded && len(canonical) == 43:
		asBase64 = asBase64.but("signature_padding", `The signature lacks the "=" at its end.`, scheme.writing())
	}
	sum, err := base64.RawStdEncoding.DecodeString(canonical)
	if err != nil {
		sum, err = base64.RawStdEncoding.DecodeString(canonical[:len(canonical)&^3]) // cut off somewhere
	}
	if err == nil {
		all = append(all, asBase64.measured(scheme, sum)...)
		if twice, err := hex.DecodeString(string(sum)); err == nil {
			all = append(all, w.but("signature_encoded_twice", "The signature is the base64 of hex digits.", scheme.writing()).measured(scheme, twice)...)
		}
	}
	return slices.DeleteFunc(all, func(w written) bool { return len(w.sum) < 4 }) // what is shorter might be chance
}

// measured takes over what was read. What is shorter than SHA-256 was cut off, if it is not another hash.
func (w written) measured(scheme Scheme, sum []byte) []written {
	w.sum = sum
	if len(sum) >= sha256.Size {
		return []written{w}
	}
	cut := w.but("signature_cut_off", "Only the first part of the signature is there.",
		"Something cuts it off: the column of a table, a buffer, or a copy by hand. "+scheme.writing())
	cut.cut = true
	return []written{w, cut}
}
