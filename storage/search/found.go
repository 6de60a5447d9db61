package search

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Found is a thing that a search has found.
type Found struct {
	Type                   string  `db:"-"`
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

var types = []string{
	Organization, User, Subscription, Event, Attempt, APIKey, AccessToken, AuditEvent, Plan, Role, Permission,
}

func byType(a, b Found) int {
	return cmp.Compare(slices.Index(types, a.Type), slices.Index(types, b.Type))
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
		parts = append(parts, string(access.Key{ExpiresAt: f.ExpiresAt, RevokedAt: f.RevokedAt}.Status(now)))
	case Event, Attempt, AuditEvent:
		f.ID = ids.ID(l.ID, f.Row, f.At)
		parts = append(parts, string(webhook.AppendTime(nil, f.At)))
	}
	f.Detail = strings.Join(parts, ", ")
}
