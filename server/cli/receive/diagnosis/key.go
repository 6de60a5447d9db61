package diagnosis

import (
	"encoding/base64"
	"strings"
)

// prefix begins a secret.
const prefix = "whsec_"

// The keys that can be made of a secret. They return nil where they do not apply.

func wholeKey(secret string) []byte {
	if secret == "" {
		return nil
	}
	return []byte(secret)
}

func strippedKey(secret string) []byte {
	rest, found := strings.CutPrefix(secret, prefix)
	if !found || rest == "" {
		return nil
	}
	return []byte(rest)
}

func decodedKey(secret string) []byte { return decode(base64.StdEncoding.Strict(), secret) }

// looselyDecodedKey is what lenient decoders make of a secret without its padding or in the URL's alphabet.
func looselyDecodedKey(secret string) []byte {
	if decodedKey(secret) != nil {
		return nil
	}
	return decode(base64.RawURLEncoding, strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(secret))
}

func decode(encoding *base64.Encoding, secret string) []byte {
	key, err := encoding.DecodeString(strings.TrimPrefix(secret, prefix))
	if err != nil || len(key) == 0 {
		return nil
	}
	return key
}

const (
	whatEmpty   = "The key is empty: the variable that holds the secret is not set where the signature is computed."
	adviceEmpty = "Have the program refuse to start without its secret."
)

// keys is how else the key is made of the secret.
func keys(scheme Scheme) []choice[func(string) []byte] {
	if scheme == Hex {
		const advice = `In this scheme the key is the whole text of the secret, "whsec_" included and not decoded.`
		return []choice[func(string) []byte]{
			{value: wholeKey},
			wrong(strippedKey, "secret_without_prefix", `The key is the secret without its "whsec_".`, advice),
			wrong(decodedKey, "secret_decoded", `The key is what the text after "whsec_" decodes to.`, advice),
			wrong(looselyDecodedKey, "secret_decoded", `The key is what the text after "whsec_" decodes to.`, advice),
			wrong(prefixedKey, "secret_without_prefix", `The secret given lacks its "whsec_": with it the signature is right.`, advice),
			wrong(emptyKey, "secret_not_set", whatEmpty, adviceEmpty),
		}
	}
	const advice = `In Standard Webhooks the key is what the text after "whsec_" decodes to, as base64.`
	return []choice[func(string) []byte]{
		{value: decodedKey},
		wrong(wholeKey, "secret_not_decoded", "The key is the whole text of the secret.", advice),
		wrong(strippedKey, "secret_not_decoded", `The key is the text after "whsec_", not decoded.`, advice),
		wrong(prefixedKey, "secret_not_decoded", `The key is the whole text of the secret, with its "whsec_".`, advice),
		wrong(looselyDecodedKey, "secret_padding", `The secret given is not padded base64 of the usual alphabet: it lacks "=" at its end, or has "-" and "_" for "+" and "/".`,
			"Take over the secret as it was shown, every character of it."),
		wrong(emptyKey, "secret_not_set", whatEmpty, adviceEmpty),
	}
}

// emptyKey is the key of code whose secret is not set.
func emptyKey(string) []byte { return []byte{} }

func prefixedKey(secret string) []byte {
	if secret == "" || strings.HasPrefix(secret, prefix) {
		return nil
	}
	return []byte(prefix + secret)
}
