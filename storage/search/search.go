// Package search owns the search for things by id, external id, prefix or name: which lookups a caller may make, and which of the
// found things come first. It knows no table: the owners of the tables list the lookups.
package search

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Most is how many things a search finds.
const Most = 20

// Type is a type of things.
type Type uint8

// The types, in the order in which a response lists them.
const (
	Organization Type = iota
	User
	Subscription
	Event
	Attempt
	APIKey
	AccessToken
	AuditEvent
	Plan
	Role
	Permission
)

var types = [...]struct {
	name  string        // in responses
	needs string        // the permission to read such things
	id    access.IDType // of their public ids; empty: they have names instead
}{
	Organization: {"organization", access.PlatformRead, access.OrganizationID},
	User:         {"user", access.PlatformRead, access.UserID},
	Subscription: {"subscription", access.WebhooksRead, access.SubscriptionID},
	Event:        {"event", access.EventsRead, access.EventID},
	Attempt:      {"attempt", access.WebhooksRead, access.AttemptID},
	APIKey:       {"api_key", access.APIKeysRead, access.KeyID},
	AccessToken:  {"access_token", access.PlatformRead, access.TokenID},
	AuditEvent:   {"audit_event", access.AuditRead, access.AuditEventID},
	Plan:         {"plan", access.PlatformRead, ""},
	Role:         {"role", access.PlatformRead, ""},
	Permission:   {"permission", access.PlatformRead, ""},
}

// String returns the name of the type in responses.
func (t Type) String() string { return types[t].name }

// By is the part of a thing with which a lookup compares the text.
type By uint8

// The parts of things.
const (
	ByID     By = iota // the text has the form of a public id of the type
	ByText             // the whole text: an external id, or an idempotency key
	ByStart            // the text is the beginning of a name, an e-mail address or a host
	ByPrefix           // the text has the form of the prefix of an API key or an access token
)

// Callers says for which callers a lookup is: those who may read all organizations, the others, or both, and what they search.
type Callers uint8

// The reaches. A lookup for both has the condition "?3 IN (0, organization_id)".
const (
	Both Callers = iota
	Everywhere
	Inside
	Acting // all, and ?3 is always the organization in which the caller acts
)

// Lookup is one statement of a search. Its columns are those of Found. Its parameters are:
//
//	?1  the text; of ByPrefix, as lists show a prefix
//	?2  the end of the texts that begin with ?1, exclusive
//	?3  the organization of the caller; 0 for a caller who may read all
//	?4  the most rows
//	?5  the row id in the public id
//	?6  the time in the public id
//	?7  the event types that the caller may not read, as a JSON array
//	?8  the text in lower case, without the scheme of a URL
//	?9  the end of the texts that begin with ?8, exclusive
type Lookup struct {
	Type    Type
	By      By
	Callers Callers
	SQL     string
}

// Query is a search of one caller.
type Query struct {
	Text         string // as the caller wrote it
	Organization int64  // in which the caller acts
	Can          func(permission string) bool
	HiddenTypes  string // the event types that the caller may not read, as a JSON array
	IDs          publicid.Maker
}

// Run makes the lookups that the caller may make, and returns what they find, the best first. A text that nothing can have finds
// nothing. It reads a few rows of an index for each lookup. The caller has the turn of the organization.
func Run(ctx context.Context, logs *scan.Reader, lookups []Lookup, q Query) ([]Found, error) {
	t, ok := parse(q.Text)
	if !ok {
		return []Found{}, nil
	}
	everywhere := q.Can(access.PlatformRead)
	row, at, _ := q.IDs.Row(t.id, t.text)
	var ranked ranking
	for _, l := range lookups {
		if !q.Can(types[l.Type].needs) || !l.fits(t) || l.Callers == Everywhere && !everywhere || l.Callers == Inside && everywhere {
			continue
		}
		given, organization := t.text, q.Organization
		if l.By == ByPrefix {
			given = t.prefix
		}
		if everywhere && l.Callers != Acting {
			organization = 0
		}
		var found []Found
		if err := logs.List(ctx, &found, l.SQL,
			given, t.text+lastCharacter, organization, Most, row, at, q.HiddenTypes, t.lower, t.lower+lastCharacter); err != nil {
			return nil, err
		}
		now := time.Now().UnixMilli()
		for i := range found {
			found[i].complete(l, q.IDs, now)
		}
		ranked.add(l, t, found)
	}
	return ranked.best(), nil
}

// fits reports whether the lookup can find a thing by the text. No name or external id has the form of an id.
func (l Lookup) fits(t text) bool {
	switch {
	case t.id != "":
		return l.By == ByID && types[l.Type].id == t.id
	case l.By == ByPrefix:
		return t.prefix != ""
	}
	return l.By != ByID
}

// lastCharacter ends a range of texts. It comes after every character of a name.
const lastCharacter = "\U0010ffff"

// ranking collects what lookups find.
type ranking struct {
	exact   []Found
	similar [][]Found // of each lookup
}

// add adds what a lookup has found. A thing that has the text as its name is exact too.
func (r *ranking) add(l Lookup, t text, found []Found) {
	if l.By != ByStart {
		r.exact = append(r.exact, found...)
		return
	}
	var similar []Found
	for _, f := range found {
		if strings.EqualFold(f.Title, t.text) {
			r.exact = append(r.exact, f)
		} else {
			similar = append(similar, f)
		}
	}
	r.similar = append(r.similar, similar)
}

// best returns at most Most things: first the exact ones, then some of each lookup, in the order of types.
func (r *ranking) best() []Found {
	best := []Found{}
	add := func(f Found) {
		known := slices.ContainsFunc(best, func(other Found) bool { return f.Type == other.Type && f.ID == other.ID })
		if !known && len(best) < Most {
			best = append(best, f)
		}
	}
	for _, f := range r.exact {
		add(f)
	}
	exact := len(best)
	for at := range Most {
		for _, found := range r.similar {
			if at < len(found) {
				add(found[at])
			}
		}
	}
	byType := func(a, b Found) int { return cmp.Compare(a.Type, b.Type) }
	slices.SortStableFunc(best[:exact], byType)
	slices.SortStableFunc(best[exact:], byType)
	return best
}

// Found is a thing that a search has found.
type Found struct {
	Type                   Type    `db:"-"`
	ID                     string  `db:"public_id"` // of a plan, a role or a permission: its name
	ParentID               *string `db:"parent_id"` // of an attempt: the subscription; of an access token: the user
	Title                  string  `db:"title"`
	Detail                 string  `db:"detail"` // one line
	OrganizationID         *string `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	OrganizationName       *string `db:"organization_name"`

	// The rest becomes a part of ID, Title or Detail.
	Row       int64  `db:"id"` // of a thing whose public id is computed
	At        int64  `db:"at"` // its time
	URL       string `db:"url"`
	ExpiresAt *int64 `db:"expires_at"`
	RevokedAt *int64 `db:"revoked_at"`
}

// complete sets what the table does not have. It shows only the host of a URL.
func (f *Found) complete(l Lookup, ids publicid.Maker, now int64) {
	f.Type = l.Type
	var parts []string
	if u, err := url.Parse(f.URL); err == nil && u.Host != "" {
		f.Title = cmp.Or(f.Title, u.Host)
		parts = append(parts, u.Host)
	}
	if f.Detail != "" {
		parts = append(parts, f.Detail)
	}
	switch f.Type {
	case APIKey, AccessToken:
		parts = append(parts, string(access.Issued{ExpiresAt: f.ExpiresAt, RevokedAt: f.RevokedAt}.Status(now)))
	case Event, Attempt, AuditEvent:
		f.ID = ids.ID(types[l.Type].id, f.Row, f.At)
		parts = append(parts, string(webhook.AppendTime(nil, f.At)))
	}
	f.Detail = strings.Join(parts, ", ")
}

type text struct {
	text   string
	lower  string        // without the scheme of a URL
	id     access.IDType // if it has the form of a public id
	prefix string        // if it begins like an API key or an access token: the prefix as lists show it
}

// parse reads what a caller wrote. ok is false if nothing can have this text: it is empty, longer than every name, or not valid
// UTF-8, or it has a control character.
func parse(written string) (t text, ok bool) {
	if len(written) > utf8.UTFMax*longest || !utf8.ValidString(written) {
		return t, false
	}
	// A text that was copied may have spaces or direction marks at its ends.
	t.text = strings.TrimFunc(written, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
	if t.text == "" || utf8.RuneCountInString(t.text) > longest || strings.ContainsFunc(t.text, unicode.IsControl) {
		return t, false
	}
	t.lower = strings.ToLower(t.text)
	for _, scheme := range []string{"https://", "http://"} {
		if address, found := strings.CutPrefix(t.lower, scheme); found && address != "" {
			t.lower = address
		}
	}
	if access.LooksLikeID(t.text) {
		t.id, _ = access.IDTypeOf(t.text)
	}
	if c, minted := access.Parse(t.text); minted {
		t.prefix = c.Display()
	} else if display, ok := access.ParseDisplay(t.text); ok {
		t.prefix = display
	}
	return t, true
}

// longest is the most characters of a text that a lookup compares: those of an external id, and of an idempotency key.
const longest = access.MaxExternalID
