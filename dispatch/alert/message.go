package alert

import (
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The limits of a message. Telegram refuses more than 4096 characters.
const (
	maxNamed = 10   // subscriptions that a message names
	maxBody  = 3400 // bytes
	maxName  = 60   // characters of an organization's name
	maxHost  = 80   // characters
	maxError = 120  // characters
)

type message struct {
	kind        Kind
	title, body string
	facts       map[string]any // for programs: what the body says
}

// newMessage makes a message. The first line of the body repeats the title, because some services show only the body.
func (o *Options) newMessage(kind Kind, title string, facts map[string]any, paragraphs ...string) message {
	body := strings.ToUpper(title[:1]) + title[1:] + ".\n\n" + strings.Join(paragraphs, "\n\n") + "\n\n" + signature(o.From)
	return message{kind: kind, title: "Keyhook: " + title, body: body, facts: facts}
}

// members are the message as JSON, for programs.
func (m message) members() map[string]any {
	all := map[string]any{"title": m.title, "message": m.body, "kind": string(m.kind)}
	maps.Copy(all, m.facts)
	return all
}

func signature(from string) string { return "Sent by Keyhook, " + from }

func (o *Options) conditionMessage(c *condition) message {
	facts := map[string]any{"since": timeOrNull(new(c.since.UnixMilli())), "is_over": !c.begins()}
	if !c.begins() {
		return o.newMessage(c.kind, c.ended, facts, "The problem began at "+utc(c.since)+".")
	}
	return o.newMessage(c.kind, c.begun, facts, "Since "+utc(c.since)+": "+shorten(plain(c.detail), 3*maxError)+".", c.mend)
}

// subscriptionMessage makes the message about subscriptions of one kind. It names those that fit.
func (o *Options) subscriptionMessage(kind Kind, all int, named []webhook.Subscription) message {
	title, lead, list := "disabled", "Keyhook sends nothing to a disabled subscription.", webhook.ActionListDisabled
	switch kind {
	case SubscriptionFailing:
		list = webhook.ActionListFailing
		title, lead = "failing", "Keyhook still tries, less often. If the failures go on, it disables the subscription."
	case SubscriptionRecovered:
		list = webhook.ActionListSubscriptions
		title, lead = "recovered", "Keyhook sends deliveries to these subscriptions again, after they were disabled."
	}
	title = fmt.Sprintf("%s subscriptions: %d", title, all)
	paragraphs, subjects := []string{lead}, []subject{}
	room := maxBody - len(title) - len(lead)
	for _, s := range named {
		entry := o.subscriptionText(kind, s)
		if room -= len(entry); room >= 0 { // the first entry without room leaves none for the others
			paragraphs = append(paragraphs, entry)
		}
		subjects = append(subjects, subject{s.ID, s.ExternalID, s.OrganizationID, s.OrganizationExternalID, webhook.URLHost(s.URL),
			timeOrNull(s.DisabledAt), timeOrNull(&s.FailingSince), s.PendingDeliveries})
	}
	if more := all + 1 - len(paragraphs); more > 0 {
		paragraphs = append(paragraphs, fmt.Sprintf("And %d more. List all with `%s`.", more, o.Command(webhook.Mend{Action: list})))
	}
	facts := map[string]any{"subscriptions": subjects, "more_subscriptions": all - len(subjects)}
	return o.newMessage(kind, title, facts, paragraphs...)
}

type subject struct {
	Subscription         string  `json:"subscription_id"`
	ExternalID           *string `json:"external_id"`
	Organization         string  `json:"organization_id"`
	OrganizationExternal *string `json:"organization_external_id"`
	Host                 string  `json:"url_host"`
	DisabledAt           *string `json:"disabled_at"`
	FailingSince         *string `json:"failing_since"`
	WaitDeliveries       int64   `json:"pending_deliveries"`
}

// timeOrNull returns a time in milliseconds for programs; null for no time and for 0.
func timeOrNull(at *int64) *string {
	if at == nil || *at == 0 {
		return nil
	}
	return new(string(webhook.AppendTime(nil, *at)))
}

type credentialText struct {
	title, lead, first, member string
	key, token                 string // types of the audit events about them
}

var credentialTexts = map[Kind]credentialText{
	CredentialsExpire: {
		"expire soon", "After its end, a key or token is refused. Rotate the keys, and create new tokens, before that.",
		"ends", "first_expires_at", access.KeyExpiring, access.AccessTokenExpiring,
	},
	CredentialsLeaked: {
		"were reported as leaked", "Somebody who had the key or token reported it, and Keyhook has revoked it. Create a new one, and find out where the old one was public.",
		"was reported", "first_reported_at", access.KeyRevoked, access.AccessTokenRevoked,
	},
}

// credentialsMessage makes the message about credentials of one kind. It names the organizations that fit.
func (o *Options) credentialsMessage(kind Kind, due []webhook.CredentialNews) message {
	about := credentialTexts[kind]
	title := fmt.Sprintf("organizations whose API keys or access tokens %s: %d", about.title, len(due))
	paragraphs, organizations := []string{about.lead}, []map[string]any{}
	room := maxBody - len(title) - len(about.lead)
	for _, d := range due[:min(len(due), maxNamed)] {
		lines := []string{fmt.Sprintf("%s: API keys: %d, access tokens: %d. The first %s at %s",
			organizationText(d.Name, d.ID, d.ExternalID), d.Keys, d.Tokens, about.first, utc(time.UnixMilli(d.FirstAt)))}
		if o.Page != nil && d.Keys > 0 {
			lines = append(lines, o.Page(d.ID, ""))
		}
		eventType := about.key
		if d.Keys == 0 {
			eventType = about.token
		}
		lines = append(lines, "To see which, run: "+o.Command(webhook.Mend{Action: webhook.ActionListAudit, Organization: d.ID, With: eventType}))
		text := strings.Join(lines, "\n")
		if room -= len(text); room < 0 {
			break
		}
		paragraphs = append(paragraphs, text)
		organizations = append(organizations, map[string]any{
			"organization_id": d.ID, "organization_external_id": d.ExternalID, "api_keys": d.Keys, "access_tokens": d.Tokens,
			about.member: timeOrNull(&d.FirstAt),
		})
	}
	more := len(due) - len(organizations)
	if more > 0 {
		paragraphs = append(paragraphs, fmt.Sprintf("And %d more organizations.", more))
	}
	return o.newMessage(kind, title, map[string]any{"organizations": organizations, "more_organizations": more}, paragraphs...)
}

func organizationText(name, id string, externalID *string) string {
	return clean(name, maxName) + " (" + withExternalID(id, externalID) + ")"
}

func withExternalID(id string, externalID *string) string {
	if externalID != nil {
		id += ", " + clean(*externalID, maxName)
	}
	return id
}

// subscriptionText is the entry of one subscription. It shows the host of the URL only.
func (o *Options) subscriptionText(kind Kind, s webhook.Subscription) string {
	lines := []string{fmt.Sprintf("%s: subscription %s, host %s",
		organizationText(s.OrganizationName, s.OrganizationID, s.OrganizationExternalID), withExternalID(s.ID, s.ExternalID), clean(webhook.URLHost(s.URL), maxHost))}
	if o.Page != nil {
		lines = append(lines, o.Page(s.OrganizationID, s.ID))
	}
	if kind == SubscriptionRecovered {
		lines = append(lines, fmt.Sprintf("Status: %s. Deliveries that wait: %d", s.Status, s.PendingDeliveries))
		return strings.Join(lines, "\n")
	}
	state, first, last := "Failing", "unknown", "never"
	if s.DisabledAt != nil {
		state = "Disabled since " + utc(time.UnixMilli(*s.DisabledAt))
	}
	if s.FailingSince != 0 {
		first = utc(time.UnixMilli(s.FailingSince))
	}
	if s.LastSuccessAt != nil {
		last = utc(time.UnixMilli(*s.LastSuccessAt))
	}
	lines = append(lines,
		fmt.Sprintf("%s. First failure: %s. Last success: %s", state, first, last),
		"Last error: "+clean(s.LastError, maxError),
		fmt.Sprintf("Deliveries that wait: %d", s.PendingDeliveries),
		"When the receiver works again, run: "+o.Command(webhook.Mend{Action: webhook.ActionRecover, Organization: s.OrganizationID, Subscription: s.ID}))
	return strings.Join(lines, "\n")
}

func utc(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// mentions are the characters with which a text could mention people, or hide a link behind other words, in one of the services.
var mentions = strings.NewReplacer("@", "(at)", "<", "(", ">", ")", "[", "(", "]", ")", "`", "'")

// links breaks what looks like a link, where everybody sees it. Services, mail programs and phones make links of URLs, and often of
// host names and IP addresses alone. Some decode HTML such as &#46; before. Other characters stand for a dot in a host name.
var links = strings.NewReplacer(
	". ", ". ", ".", "(.)", "\u3002", "(.)", "\uff0e", "(.)", "\uff61", "(.)", "\u2024", "(.)", ": ", ": ", ":", "(:)", "& ", "& ", "&", "(and)")

func shorten(text string, most int) string {
	if characters := []rune(text); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return text
}

// clean makes a text of a customer safe for all services: one line, no mention of people, no link, and not long.
func clean(text string, most int) string {
	return shorten(strings.TrimSuffix(links.Replace(plain(text)+" "), " "), most)
}

// plain returns a text in one line that mentions nobody.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(mentions.Replace(text)), " ")
}

// Kind is what an alert is about. Each kind has its own message and its own interval.
type Kind string

// The kinds of alerts. All but the first five are conditions, which begin and end.
const (
	SubscriptionFailing   Kind = "subscription_failing"
	SubscriptionDisabled  Kind = "subscription_disabled"
	SubscriptionRecovered Kind = "subscription_recovered"
	CredentialsExpire     Kind = "credentials_expire"
	CredentialsLeaked     Kind = "credentials_leaked"
	DeliveriesLate        Kind = "deliveries_late"
	DiskLow               Kind = "disk_low"
	WritesRefused         Kind = "writes_refused"
	ResultsUnsaved        Kind = "results_unsaved"
	ClockJumped           Kind = "clock_jumped"
	CertificateExpires    Kind = "certificate_expires"

	kindTest Kind = "test"
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{SubscriptionFailing, SubscriptionDisabled, SubscriptionRecovered, CredentialsExpire, CredentialsLeaked, DeliveriesLate, DiskLow,
		WritesRefused, ResultsUnsaved, ClockJumped, CertificateExpires}
}
