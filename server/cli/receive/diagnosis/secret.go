package diagnosis

import "strings"

// secrets is what became of the text of the secret before a key was made of it: of the one given here, or of the one
// that the code in question took.
func (d Delivery) secrets() []choice[string] {
	s := d.Secret
	all := []choice[string]{{value: s}}
	add := func(text, name, what, advice string) {
		for _, c := range all {
			if c.value == text {
				return
			}
		}
		all = append(all, wrong(text, name, what, advice))
	}
	if d.Previous != "" {
		add(d.Previous, "secret_replaced", "It was signed with the other secret given, not with this one.",
			"The secret was rotated, and one side has the old one: take over the one that the rotation returned. Where it was not, the two belong to two subscriptions.")
	}
	const space = "Read the secret without the line break or the space around it, as strings.TrimSpace does."
	const quotes = "The quotes belong to the file or the shell, not to the secret: some readers of .env files, and docker's --env-file, keep them."
	add(strings.TrimSpace(s), "secret_with_space", "The secret given has white space around it, such as the line break at the end of a file: without it the signature is right.", space)
	add(strings.Trim(strings.TrimSpace(s), `"'`), "secret_with_quotes", "The secret given stands in quotes: without them the signature is right.", quotes)
	add(strings.ReplaceAll(s, " ", "+"), "secret_plus_lost", `The secret given has spaces where it should have "+".`,
		`It went through a URL or a form, where "+" stands for a space. Take it over as it was shown.`)
	add(padded(s), "secret_padding", `The secret given lacks the "=" at its end.`,
		"Something cut it off at the first \"=\", as `cut -d= -f2` does to a line of a .env file. Take it over as it was shown.")
	add(s+"\n", "secret_with_space", "The key has a line break at its end that the secret has not.", space)
	add(s+"\r\n", "secret_with_space", "The key has a line break at its end that the secret has not.", space)
	add(`"`+s+`"`, "secret_with_quotes", "The key has quotes around it that the secret has not.", quotes)
	add(`'`+s+`'`, "secret_with_quotes", "The key has quotes around it that the secret has not.", quotes)
	add(strings.TrimRight(s, "="), "secret_padding", `The key lacks the "=" at the end of the secret.`,
		"Something cut it off at the first \"=\", as `cut -d= -f2` does to a line of a .env file.")
	for _, text := range []string{"undefined", "null", "None", "nil"} {
		add(text, "secret_not_set", "The key is the word \""+text+"\": the variable that holds the secret is not set where the signature is computed.",
			"Have the program refuse to start without its secret.")
	}
	return all
}

// padded adds the "=" that base64 should end in.
func padded(secret string) string {
	rest := strings.TrimPrefix(secret, prefix)
	if missing := -len(rest) & 3; missing == 1 || missing == 2 {
		return secret + strings.Repeat("=", missing)
	}
	return secret
}
