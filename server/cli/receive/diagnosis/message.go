package diagnosis

import "strings"

// message is what is signed: what stands before the body, and what after it.
type message struct {
	head, tail string
	bodyless   bool
}

func (m message) text(body []byte) []byte {
	if m.bodyless {
		body = nil
	}
	return append(append([]byte(m.head), body...), m.tail...)
}

// canonical is the message as it should be.
func (d Delivery) canonical(scheme Scheme, stamp string) message {
	if scheme == Hex {
		return message{head: stamp + "."}
	}
	return message{head: d.Header.Get(d.idHeader(scheme)) + "." + stamp + "."}
}

// form says in words what the message should be.
func (s Scheme) form() string {
	if s == Hex {
		return "<timestamp>.<body>: the text of the timestamp's header, a dot, the raw body"
	}
	return "<id>.<timestamp>.<body>: the texts of webhook-id and webhook-timestamp and the raw body, with a dot between each"
}

// messages is how else the message is put together.
func (d Delivery) messages(scheme Scheme) []choice[message] {
	stamp, id := d.Header.Get(d.timestampHeader(scheme)), d.Header.Get("webhook-id")
	advice := "Sign " + scheme.form() + "."
	all := []choice[message]{{value: d.canonical(scheme, stamp)}}
	add := func(m message, name, what string) { all = append(all, wrong(m, name, what, advice)) }

	add(message{}, "timestamp_missing", "Only the body was signed, without the timestamp before it.")
	if scheme == Hex {
		add(message{head: id + "." + stamp + "."}, "message_of_other_scheme", "The message is that of Standard Webhooks, which begins with the id; "+d.signatureHeader(scheme)+" does without.")
		add(message{head: id + "."}, "timestamp_missing", "The id and the body were signed, without the timestamp.")
	} else {
		add(message{head: stamp + "."}, "message_of_other_scheme", "The message lacks the id: that is the one of "+d.signatureHeader(Hex)+", and this scheme begins with the id.")
		add(message{head: stamp + "." + id + "."}, "message_order", "The timestamp stands before the id in the message.")
		add(message{head: id + "."}, "timestamp_missing", "The timestamp is missing from the message.")
	}
	head := d.canonical(scheme, stamp).head
	for _, separator := range []string{"", ":", "\n", ",", " ", "|", "-"} {
		add(message{head: strings.ReplaceAll(head, ".", separator)}, "separator", "The parts of the message are joined by "+quoted(separator)+" where a dot should be.")
	}
	add(message{head: strings.TrimSuffix(head, "."), bodyless: true}, "body_missing", "The body is missing from the message.")
	add(message{tail: "." + stamp}, "message_order", "The body stands before the timestamp in the message.")
	return append(all, d.timestamps(scheme, stamp)...)
}

// timestamps is what else is taken for the timestamp, or for the id.
func (d Delivery) timestamps(scheme Scheme, stamp string) []choice[message] {
	name := d.timestampHeader(scheme)
	all := []choice[message]{
		wrong(d.canonical(scheme, stamp+"000"), "timestamp_milliseconds", "The timestamp was signed in milliseconds.",
			"Sign the text of "+name+" as it came: it is in seconds."),
		wrong(d.canonical(scheme, stamp+".0"), "timestamp_as_fraction", "The timestamp was signed as a number with a fraction.",
			"Sign the text of "+name+" as it came, and do not make a number of it first."),
	}
	if cut, ok := strings.CutSuffix(stamp, stamp[max(0, len(stamp)-3):]); ok && len(stamp) == 13 {
		all = append(all, wrong(d.canonical(scheme, cut), "timestamp_milliseconds",
			name+" holds milliseconds, and the signature was made over seconds.", "Whatever rewrites this header on its way must leave it alone: it is in seconds."))
	}
	for _, other := range []Scheme{Hex, Standard} {
		if text := d.Header.Get(d.timestampHeader(other)); text != stamp && text != "" {
			all = append(all, wrong(d.canonical(scheme, text), "timestamp_altered",
				name+" and "+d.timestampHeader(other)+" differ, and the signature was made over the latter.", "Find what rewrites "+name+" on its way; both are the same as sent."))
		}
	}
	if id := d.bodyID(); scheme == Standard && id != "" && id != d.Header.Get("webhook-id") {
		all = append(all, wrong(message{head: id + "." + stamp + "."}, "id_altered",
			"webhook-id differs from the id in the body, and the signature was made over the latter.", "Find what rewrites webhook-id on its way, or take it from the same request as the body."))
	}
	return all
}

func quoted(separator string) string {
	switch separator {
	case "":
		return "nothing"
	case "\n":
		return "a line feed"
	case " ":
		return "a space"
	default:
		return `"` + separator + `"`
	}
}
