package alert

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
)

type sender func(context.Context, message) error

// services are the kinds of channels, by the scheme of their URLs. Each returns how the channel of a URL sends a message. It takes the
// options that it knows.
var services = map[string]func(u *url.URL, o url.Values) (sender, error){
	"discord": discord, "generic": generic, "gotify": gotify, "ntfy": ntfy, "slack": slack,
	"smtp": mail, "teams": teams, "telegram": telegram,
}

// post is how a message becomes a POST request.
type post struct {
	url    string
	header http.Header                    // further header fields; nil if there are none
	text   func(m message) string         // the whole body; nil if it is JSON
	object func(m message) map[string]any // the whole body as JSON
	titled string                         // the name of a header field with the title; empty if there is none
}

// client sends the messages of all HTTP services. Like deliveries, alerts ignore the proxies of the environment and follow no
// redirect, which would lose the message. Unlike deliveries, they may go to private addresses, because the operator chose the URLs.
var client = &http.Client{
	Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true, MaxIdleConns: 8, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

const (
	requestTimeout = 20 * time.Second // of one request, from the DNS lookup to the end of the response
	maxResponse    = 4 << 10          // bytes that are read, so that the connection can be used again
)

func (p post) send(ctx context.Context, m message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errSlow)
	defer cancel()
	content, contentType := []byte(nil), "application/json"
	if p.text != nil {
		content, contentType = []byte(p.text(m)), "text/plain; charset=utf-8"
	} else {
		content, _ = json.Marshal(p.object(m)) // of texts and numbers, which JSON always has
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", contentType)
	maps.Copy(r.Header, p.header)
	if p.titled != "" {
		r.Header.Set(p.titled, mime.QEncoding.Encode("utf-8", m.title))
	}
	response, err := client.Do(r)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, maxResponse); err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(context.Cause(ctx), err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return answered(response.StatusCode)
	}
	return nil
}

// answered is the status of a service that has not taken a message.
type answered int

func (a answered) Error() string { return fmt.Sprintf("the service answered %d", int(a)) }

// discord is the form discord://TOKEN@ID (discord.com/developers/docs/resources/webhook). Nothing in a message mentions anybody.
func discord(u *url.URL, _ url.Values) (sender, error) {
	if u.User.Username() == "" {
		return nil, errors.New("the token before @ is missing")
	}
	return post{
		url: "https://discord.com/api/webhooks/" + url.PathEscape(u.Host) + "/" + url.PathEscape(u.User.Username()),
		object: func(m message) map[string]any {
			return map[string]any{
				"embeds":           []any{map[string]any{"title": m.title, "description": m.body}},
				"allowed_mentions": map[string]any{"parse": []string{}},
			}
		},
	}.send, nil
}

// slack is the form slack://hook:A-B-C@webhook (api.slack.com/messaging/webhooks).
func slack(u *url.URL, _ url.Values) (sender, error) {
	token, _ := u.User.Password()
	parts := slackToken.FindStringSubmatch(token)
	if u.User.Username() != "hook" || parts == nil {
		return nil, errors.New("the form is hook:A-B-C@webhook")
	}
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return post{
		url:    "https://hooks.slack.com/services/" + strings.Join(parts[1:], "/"),
		object: func(m message) map[string]any { return map[string]any{"text": escape.Replace(m.body)} },
	}.send, nil
}

var slackToken = regexp.MustCompile(`^([0-9A-Za-z]+)-([0-9A-Za-z]+)-([0-9A-Za-z]+)$`)

// teams is teams+ and the URL of a webhook. The message is an adaptive card
// (learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors).
func teams(u *url.URL, o url.Values) (sender, error) {
	if u.Scheme != "https" {
		return nil, errors.New("the form is teams+ and the https:// URL of the webhook")
	}
	clear(o) // they belong to the webhook
	return post{url: u.String(), object: func(m message) map[string]any {
		text := strings.ReplaceAll(m.body, "\n", "\n\n") // one is no new line in a card
		return map[string]any{"type": "message", "attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"content": map[string]any{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
				"body": []any{map[string]any{"type": "TextBlock", "text": text, "wrap": true}},
			},
		}}}
	}}.send, nil
}

// telegram is the form telegram://TOKEN@telegram?chats=@CHANNEL (core.telegram.org/bots/api#sendmessage).
func telegram(u *url.URL, o url.Values) (sender, error) {
	token, chat := u.User.String(), take(o, "chats", "")
	if !telegramToken.MatchString(token) {
		return nil, errors.New("the token before @ is not one of a bot, such as 123456:ABC")
	}
	if chat == "" || strings.Contains(chat, ",") {
		return nil, errors.New("chats must name one channel or chat; for another one, add another URL")
	}
	return post{url: "https://api.telegram.org/bot" + token + "/sendMessage", object: func(m message) map[string]any {
		return map[string]any{"chat_id": chat, "text": m.body, "link_preview_options": map[string]any{"is_disabled": true}}
	}}.send, nil
}

var telegramToken = regexp.MustCompile(`^[0-9]+:[0-9A-Za-z_-]{20,}$`)

// ntfy is the form ntfy://USER:PASSWORD@HOST/TOPIC (docs.ntfy.sh/publish).
func ntfy(u *url.URL, o url.Values) (sender, error) {
	if strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("the topic after the host is missing")
	}
	address, err := webURL(u, take(o, "scheme", "https"), u.EscapedPath())
	return post{url: address, titled: "Title", text: bodyOnly, header: basicAuth(u)}.send, err
}

// gotify is the form gotify://HOST/TOKEN (gotify.net/docs/pushmsg).
func gotify(u *url.URL, o url.Values) (sender, error) {
	base, token := path.Split(strings.TrimSuffix(u.Path, "/"))
	if token == "" {
		return nil, errors.New("the token after the host is missing")
	}
	address, err := webURL(u, schemeOf(o), (&url.URL{Path: base}).EscapedPath()+"message")
	return post{url: address, header: http.Header{"X-Gotify-Key": {url.PathEscape(token)}}, object: func(m message) map[string]any {
		return map[string]any{"title": m.title, "message": m.body, "priority": 5}
	}}.send, err
}

// generic is the URL of a program. With template=json the message is an object, otherwise the body alone.
func generic(u *url.URL, o url.Values) (sender, error) {
	scheme := u.Scheme
	if scheme == "generic" {
		scheme = schemeOf(o)
	}
	p := post{text: bodyOnly, header: http.Header{}}
	switch take(o, "template", "") {
	case "":
	case "json":
		p.text, p.object = nil, message.members
	default:
		return nil, errors.New("template must be json, or be left out")
	}
	for name, values := range o {
		if field, is := strings.CutPrefix(name, "@"); is {
			p.header[http.CanonicalHeaderKey(field)] = values
			delete(o, name)
		}
	}
	maps.Copy(p.header, basicAuth(u))
	address, err := webURL(u, scheme, u.EscapedPath())
	if query := o.Encode(); query != "" { // it belongs to the program
		address += "?" + query
	}
	clear(o)
	p.url = address
	return p.send, err
}

func bodyOnly(m message) string { return m.body }

func webURL(u *url.URL, scheme, escapedPath string) (string, error) {
	if scheme != "http" && scheme != "https" {
		return "", errors.New("the scheme must be http or https")
	}
	return scheme + "://" + u.Host + escapedPath, nil
}

// schemeOf returns the scheme of a service that speaks TLS unless its URL says otherwise.
func schemeOf(o url.Values) string {
	if take(o, "disabletls", "no") == "yes" {
		return "http"
	}
	return "https"
}

// basicAuth returns the header with the user and the password of a URL. It is empty without a user.
func basicAuth(u *url.URL) http.Header {
	r := http.Request{Header: http.Header{}}
	if u.User != nil {
		password, _ := u.User.Password()
		r.SetBasicAuth(u.User.Username(), password)
	}
	return r.Header
}
