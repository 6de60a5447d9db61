package alert

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// Channel is one of alerts.urls.
type Channel struct {
	number  int // place in the list, from 1
	service string
	send    sender
}

// String names the channel without its URL, such as "ntfy 2".
func (c Channel) String() string { return fmt.Sprintf("%s %d", c.service, c.number) }

// Channels checks service URLs, and connects to nothing. The error joins one advice for each wrong URL, and shows no part of a URL. With
// an error, the channels have only their names.
func Channels(urls []redact.Text) ([]Channel, error) {
	var channels []Channel
	var wrong []error
	for i, raw := range urls {
		c := Channel{number: i + 1}
		err := c.parse(raw.Reveal())
		channels, wrong = append(channels, c), append(wrong, err)
	}
	return channels, errors.Join(wrong...)
}

// ownForms are hosts whose webhook takes only messages in its own form, and how to write its URL.
var ownForms = map[string]string{
	"hooks.slack.com":  "slack://hook:A-B-C@webhook for https://hooks.slack.com/services/A/B/C",
	"discord.com":      "discord://TOKEN@ID for https://discord.com/api/webhooks/ID/TOKEN",
	"api.telegram.org": "telegram://TOKEN@telegram?chats=@CHANNEL",
}

const formsMend = "write the URL as in the section about alerts of the document \"operating\""

func (c *Channel) parse(address string) error {
	advise := func(what, mend string) error {
		return &fault.Advice{What: fmt.Sprintf("URL %d: %s", c.number, what), Mend: mend}
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return advise("the text is not a URL", formsMend)
	}
	if u.Scheme == "https" || u.Scheme == "http" { // the URL of a program
		u.Scheme = "generic+" + u.Scheme
	}
	service, inner, custom := strings.Cut(u.Scheme, "+")
	c.service = service
	parse, known := services[service]
	switch {
	case !known:
		return advise("the service is unknown", "begin the URL with one of: https://, "+strings.Join(slices.Sorted(maps.Keys(services)), "://, ")+"://")
	case u.Host == "":
		return advise("the URL of "+service+" has no host after ://", formsMend)
	case !validPort(u.Port()):
		return advise("the URL of "+service+" is wrong: the port must be from 1 to 65535", formsMend)
	case service == "generic" && ownForms[u.Hostname()] != "":
		return advise("this service takes messages in its own form only", "write "+ownForms[u.Hostname()])
	case custom && service != "generic" && service != "teams": // only their URLs may be the service's own, such as teams+https://…
		return advise("the URL of "+service+" is wrong: the service takes no + after its name", formsMend)
	case custom:
		u.Scheme = inner
	}
	options := u.Query()
	if c.send, err = parse(u, options); err == nil && len(options) > 0 {
		err = errors.New("an option after ? is unknown") // the text does not repeat it, because it may be a part of a secret
	}
	if err != nil {
		return advise("the URL of "+service+" is wrong: "+err.Error(), formsMend) // the text has no part of the URL
	}
	return nil
}

// validPort reports whether a URL may have the port; empty: it has none.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// take takes a query parameter of a service URL. Those that nothing has taken are unknown.
func take(options url.Values, name, otherwise string) string {
	defer options.Del(name)
	if !options.Has(name) {
		return otherwise
	}
	return options.Get(name)
}
