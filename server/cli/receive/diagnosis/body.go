package diagnosis

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	rawAdvice     = "Check the raw bytes of the request before anything parses them: io.ReadAll(r.Body) in Go, express.raw() in Express, request.get_data() in Flask, request.body in Django, file_get_contents('php://input') in PHP."
	textAdvice    = "Keep the body as bytes: no editor, no text mode, no copy by way of a terminal. curl wants --data-binary instead of --data."
	charsetAdvice = "Keep the body as bytes, or decode and encode it as UTF-8 both times."
)

// byteOrderMark is what some programs write before a text in UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// bodies is what the signed bytes may have been, if not the ones given. No two of them are the same.
func bodies(body []byte) []choice[[]byte] {
	all := []choice[[]byte]{{value: body}}
	seen := map[string]bool{string(body): true}
	add := func(other []byte, name, what, advice string) {
		if other != nil && !seen[string(other)] {
			seen[string(other)] = true
			all = append(all, wrong(other, name, what, advice))
		}
	}
	const added = "The body given ends in a line break that was not signed."
	add(bytes.TrimSuffix(body, []byte("\n")), "body_newline_added", added, textAdvice)
	add(bytes.TrimSuffix(body, []byte("\r\n")), "body_newline_added", added, textAdvice)
	add(bytes.TrimSpace(body), "body_newline_added", "The body given has white space around it that was not signed.", textAdvice)
	const removed = "A line break was signed at the end that the body given has not."
	add(slices.Concat(body, []byte("\n")), "body_newline_removed", removed, textAdvice)
	add(slices.Concat(body, []byte("\r\n")), "body_newline_removed", removed, textAdvice)
	lines := bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	add(lines, "body_line_ends", "The lines of the body given end in CR LF, and those that were signed in LF.", textAdvice)
	add(bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")), "body_line_ends", "The lines of the body given end in LF, and those that were signed in CR LF.", textAdvice)
	if rest, found := bytes.CutPrefix(body, []byte(byteOrderMark)); found {
		add(rest, "body_byte_order_mark", "The body given begins with a byte order mark that was not signed.", textAdvice)
	} else {
		add(slices.Concat([]byte(byteOrderMark), body), "body_byte_order_mark", "A byte order mark was signed that the body given has not.", textAdvice)
	}
	add([]byte{}, "body_empty", "An empty body was signed in place of this one.",
		"Something had read the request's body before it was signed or checked, and a body can be read once: keep its bytes.")

	add(fromLatin(body), "body_charset", "The body was taken for Latin-1 and written again as UTF-8: the letters beyond ASCII have doubled.", charsetAdvice)
	add(toLatin(body), "body_charset", "The body was signed as it looks when it is taken for Latin-1 and written again as UTF-8.", charsetAdvice)
	add(fromUTF16(body), "body_charset", "The body given is UTF-16, and UTF-8 was signed.", charsetAdvice)
	add(base64Of(body), "body_base64", "The base64 of the body was signed, not the body.", "Decode it first: gateways of serverless platforms pass bodies on as base64.")
	add(fromBase64(body), "body_base64", "The body given is base64, and what it decodes to was signed.", "Decode it first: gateways of serverless platforms pass bodies on as base64.")
	var text string
	if json.Unmarshal(body, &text) == nil {
		add([]byte(text), "body_quoted", "The body given is a JSON string with the signed JSON in it.", "It was encoded once too often. "+rawAdvice)
	}
	if quoted, err := json.Marshal(string(body)); err == nil {
		add(quoted, "body_quoted", "The body was signed as a JSON string with the JSON in it.", "It was encoded once too often. "+rawAdvice)
	}
	for _, r := range rewritings(body) {
		add(r.text, "body_reserialized", "The JSON was parsed and written again: what was signed is the same JSON "+r.how+".", rawAdvice)
	}
	var event struct {
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(body, &event) == nil && event.Data != nil {
		add(event.Data, "body_data_alone", `Only the "data" of the event was signed, not the whole body.`, rawAdvice)
	}
	return all
}

// late are the characters that Windows-1252, which many decoders mean by Latin-1, has for the bytes from 0x80 on.
var late = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ")

// toLatin takes each byte for a character, and writes those as UTF-8.
func toLatin(body []byte) []byte {
	var text []byte
	for _, b := range body {
		text = utf8.AppendRune(text, rune(b))
	}
	return text
}

// fromLatin undoes toLatin, with the characters of either Latin-1 or Windows-1252. It returns nil where others occur.
func fromLatin(body []byte) []byte {
	var bytes []byte
	for _, r := range string(body) {
		place := slices.Index(late, r)
		switch {
		case place >= 0:
			bytes = append(bytes, byte(0x80+place))
		case r <= 0xff:
			bytes = append(bytes, byte(r))
		default:
			return nil
		}
	}
	return bytes
}

// fromUTF16 decodes either order of bytes, told apart by where the zeros of ASCII are.
func fromUTF16(body []byte) []byte {
	if len(body) < 4 || len(body)%2 != 0 {
		return nil
	}
	var order binary.ByteOrder
	switch tail := body[len(body)-2:]; {
	case tail[1] == 0:
		order = binary.LittleEndian
	case tail[0] == 0:
		order = binary.BigEndian
	default:
		return nil
	}
	var units []uint16
	for pair := range slices.Chunk(body, 2) {
		units = append(units, order.Uint16(pair))
	}
	return bytes.TrimPrefix([]byte(string(utf16.Decode(units))), []byte(byteOrderMark))
}

func base64Of(body []byte) []byte { return base64.StdEncoding.AppendEncode(nil, body) }

func fromBase64(body []byte) []byte {
	text, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(body)))
	if err != nil || len(text) == 0 {
		return nil
	}
	return text
}
