package server

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/apply"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/server/usage"
	"github.com/keyhook/keyhook/server/webhooks"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/search"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Store is everything that the server asks of the store. The packages of handlers and of checks declare their own parts.
//
// An error that a caller may see is a fault; every other error is internal. A resource that does not exist, was deleted, or
// belongs to another organization is NotFound in all three cases.
type Store interface {
	check.Store
	form.LookupStore
	platform.Store
	webhooks.Store
	apply.Store
	usage.Store

	// CreateKey stores a key of creator, of the service account, or of the user that k names. Its scope is reduced to the
	// permissions of that user and of creator.
	CreateKey(ctx context.Context, creator access.Principal, actor access.Actor, k access.NewKey) (access.Key, error)
	// KeyPage lists them newest first; organization access.AllOrganizations lists those of all organizations.
	KeyPage(ctx context.Context, organization int64, f access.KeyFilter) (access.Page[access.Key], error)
	RevokeKey(ctx context.Context, actor access.Actor, organization int64, id string) error
	// RotateKey replaces a key with a new key of creator. The old key stays valid for the grace period. Conflict if it
	// has ended or was rotated already.
	RotateKey(ctx context.Context, creator access.Principal, actor access.Actor, id string, credential access.Credential, grace time.Duration) (access.RotatedKey, error)

	KeyState(ctx context.Context, digest access.Digest) (access.CredentialState, error)
	KeyStateByID(ctx context.Context, id string) (access.CredentialState, error)

	// RevokeLeaked revokes the API key or the access token with a digest. It does nothing if there is none.
	RevokeLeaked(ctx context.Context, digest access.Digest, ip, requestID string) error

	AuditPage(ctx context.Context, organization int64, f access.AuditFilter) (access.Page[access.AuditEvent], error)
	// AuditNames returns what a text may name: an id, a name or an external id.
	AuditNames(ctx context.Context, organization int64, text string, everywhere bool) ([]string, error)
	AuditEvent(ctx context.Context, organization int64, id string) (access.AuditEvent, error)

	// Search finds what by may read by a text, the best first.
	Search(ctx context.Context, by access.Principal, text string) ([]search.Found, error)

	CreateSession(ctx context.Context, p access.Principal, actor access.Actor, c access.Credential) (access.Session, error)
	// UseLink starts the session of a sign-in link, whose principal is p. It returns Unauthenticated if the link was used meanwhile.
	UseLink(ctx context.Context, p access.Principal, actor access.Actor, link, cookie access.Credential) (access.Session, error)
	// SessionOrganizations returns the organizations in which the session of p may act as a member; none if it may not switch.
	SessionOrganizations(ctx context.Context, p access.Principal) ([]access.Organization, error)
	EndSession(ctx context.Context, p access.Principal, actor access.Actor) error

	CreateIdentitySession(ctx context.Context, p access.Principal, i access.Identity, actor access.Actor, c access.Credential) (access.Session, error)

	Ping(ctx context.Context) error
	// Hold returns the hold of the queue, or nil.
	Hold() *webhook.Hold
}
