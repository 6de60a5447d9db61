package alert

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/discord"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/teams"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/telegram"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/gotify"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/generic"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// services makes a service by the scheme of its URL. The library has more, which would make the binary larger.
var services = map[string]func() types.Service{
	discord.Scheme:  func() types.Service { return &discord.Service{} },
	generic.Scheme:  func() types.Service { return &generic.Service{} },
	gotify.Scheme:   func() types.Service { return &gotify.Service{} },
	ntfy.Scheme:     func() types.Service { return &ntfy.Service{} },
	slack.Scheme:    func() types.Service { return &slack.Service{} },
	smtp.Scheme:     func() types.Service { return &smtp.Service{} },
	teams.Scheme:    func() types.Service { return &teams.Service{} },
	telegram.Scheme: func() types.Service { return &telegram.Service{} },
}

// Channel is one of alerts.urls.
type Channel struct {
	number  int // place in the list, from 1
	service string
	url     redact.Text
}

// String names the channel without its URL, such as "ntfy 2".
func (c Channel) String() string { return fmt.Sprintf("%s %d", c.service, c.number) }

// Channels checks service URLs. The error joins one advice for each wrong URL. It shows no part of a URL.
func Channels(urls []redact.Text) ([]Channel, error) {
	var channels []Channel
	var wrong []error
	for i, raw := range urls {
		c := Channel{number: i + 1, url: raw}
		err := c.check()
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

// check sets the service, or returns an advice.
func (c *Channel) check() error {
	advise := func(what, mend string) error {
		return &fault.Advice{What: fmt.Sprintf("URL %d: %s", c.number, what), Mend: mend}
	}
	u, custom, err := c.parse()
	switch _, known := services[c.service]; {
	case err != nil || u.Scheme == "":
		return advise("the text is not a URL", formsMend)
	case !known:
		return advise("the service is unknown", "begin the URL with one of: https://, "+strings.Join(slices.Sorted(maps.Keys(services)), "://, ")+"://")
	case u.Host == "":
		return advise("the URL of "+c.service+" has no host after ://", formsMend)
	case c.service == generic.Scheme && ownForms[u.Hostname()] != "":
		return advise("this service takes messages in its own form only", "write "+ownForms[u.Hostname()])
	}
	if _, err := c.make(u, custom); err != nil {
		return advise("the URL of "+c.service+" is wrong: "+c.scrub(err), formsMend)
	}
	return nil
}

// parse parses the URL and sets the service. custom says that the URL is the service's own URL, such as generic+https://…
// A plain https:// URL is one of the service generic.
func (c *Channel) parse() (u *url.URL, custom bool, err error) {
	u, err = url.Parse(c.url.Reveal())
	if err != nil {
		return nil, false, err
	}
	if u.Scheme == "https" || u.Scheme == "http" {
		u.Scheme = generic.Scheme + "+" + u.Scheme
	}
	c.service, _, custom = strings.Cut(u.Scheme, "+")
	return u, custom, nil
}

var errNotCustom = errors.New("the service takes no + after its name")

// make makes the service. It connects to nothing.
func (c *Channel) make(u *url.URL, custom bool) (service types.Service, err error) {
	service = services[c.service]()
	if custom {
		converter, can := service.(types.CustomURLService)
		if !can {
			return nil, errNotCustom
		}
		if u, err = converter.GetConfigURLFromCustom(u); err != nil {
			return nil, err
		}
	}
	return service, service.Initialize(u, nil)
}

// send sends one message. It makes the service anew, because some services change their settings when they send. The
// library takes no context. Requests end after requestTimeout, but a mail server can hold send for longer.
func (c Channel) send(title, body string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the library failed: %v", r)
		}
	}()
	u, custom, err := c.parse()
	if err != nil {
		return err
	}
	service, err := c.make(u, custom)
	if err != nil {
		return err
	}
	params := types.Params{types.TitleKey: title}
	var result *watch
	switch s := service.(type) {
	case *discord.Service:
		if !strings.Contains(strings.ToLower(u.RawQuery), "splitlines=") {
			params["splitLines"] = "No" // else each line is an item of its own
		}
	case *generic.Service:
		at := s.Config.WebhookURL()
		result = verified.watch(at.Host, at.Path)
	case *gotify.Service:
		defer s.GetHTTPClient().CloseIdleConnections()
	case *ntfy.Service:
		client := &http.Client{Transport: verified}
		if s.Config.DisableTLSVerification {
			client.Transport = unverified
		}
		s.SetHTTPClient(client)
	case *telegram.Service:
		result = verified.watch("api.telegram.org", "/bot"+s.Config.Token+"/sendMessage")
	}
	err = service.Send(body, &params)
	return errors.Join(err, result.end(err))
}
