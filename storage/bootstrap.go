package storage

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/access"
)

// bootstrapToken is the name of the first operator's access tokens.
const bootstrapToken = "bootstrap"

// firstRequestAt is the row of table instance with the time of the first authenticated request.
const firstRequestAt = "first_request_at"

// firstRequest says whether anybody has made an authenticated request, with any credential. After that, no start
// creates a token. Requests set a flag, and upkeep writes the row once.
type firstRequest struct {
	made  atomic.Bool
	saved bool          // the row is written; used by upkeep only
	wake  chan struct{} // tells upkeep to write the row
}

func newFirstRequest() firstRequest { return firstRequest{wake: make(chan struct{}, 1)} }

// note records an authenticated request in memory.
func (f *firstRequest) note() {
	if !f.made.Load() && f.made.CompareAndSwap(false, true) {
		f.wake <- struct{}{}
	}
}

// saveFirstRequest stores the time of the first authenticated request.
func (s *Store) saveFirstRequest(ctx context.Context) error {
	if s.firstRequest.saved || !s.firstRequest.made.Load() {
		return nil
	}
	err := s.change(ctx, func(t *tx) error {
		_, err := t.Exec("INSERT OR IGNORE INTO instance (name, value) VALUES (?, ?)", firstRequestAt, []byte(strconv.FormatInt(t.Now(), 10)))
		return err
	})
	s.firstRequest.saved = err == nil
	return err
}

// ensureBootstrapToken makes the bootstrap credential an access token of the first operator, until somebody has made an
// authenticated request. An earlier start may have ended before anybody read its token. So the new token replaces
// unused tokens of earlier starts, and there is at most one. A revoked token stays revoked.
func (s *Store) ensureBootstrapToken(o Options) error {
	return s.changeBeforeRun(func(t *tx) error {
		first, err := findFirstOperator(t)
		if err != nil {
			return err
		}
		requested, err := hadRequests(t, first)
		if err != nil {
			return err
		}
		s.firstRequest.made.Store(requested)
		s.firstRequest.saved = requested
		if o.Bootstrap == (access.Credential{}) {
			return nil
		}
		exists, revoked, err := bootstrapState(t, o.Bootstrap)
		if err != nil {
			return err
		}
		if revoked || requested && !exists && o.BootstrapLife == 0 {
			s.bootstrapRefused = true
		}
		if requested {
			return nil
		}
		if err := s.revokeUnused(t, first, o.Bootstrap); err != nil || exists {
			return err
		}
		s.bootstrapCreated = true
		return s.createBootstrapToken(t, first, o)
	})
}

// firstOperator is an operator of the oldest organization with operators, by row ids.
type firstOperator struct {
	User         int64 `db:"user_id"`
	Organization int64 `db:"organization_id"`
}

func findFirstOperator(t *tx) (first firstOperator, err error) {
	err = t.Get(&first, `
		SELECT m.user_id, m.organization_id FROM roles r JOIN memberships m ON m.role_id = r.id
		WHERE r.name = ? ORDER BY m.organization_id, m.user_id LIMIT 1`, access.RoleOperator)
	return first, err
}

// hadRequests reports whether anybody has made an authenticated request. A used token of the first operator proves it
// too, because the process may have ended before it wrote the row.
func hadRequests(t *tx, first firstOperator) (requested bool, err error) {
	err = t.Get(&requested, `
		SELECT EXISTS (SELECT 1 FROM instance WHERE name = ?)
		    OR EXISTS (SELECT 1 FROM access_tokens WHERE user_id = ? AND last_used_at IS NOT NULL)`, firstRequestAt, first.User)
	return requested, err
}

// bootstrapState reports whether a credential is an access token, and whether the token is revoked.
func bootstrapState(t *tx, c access.Credential) (exists, revoked bool, err error) {
	digest := c.Digest()
	err = t.Get(&revoked, "SELECT revoked_at IS NOT NULL FROM access_tokens WHERE digest = ?", digest[:])
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return err == nil, revoked, err
}

// revokeUnused revokes the unused tokens of earlier starts, except keep.
func (s *Store) revokeUnused(t *tx, first firstOperator, keep access.Credential) error {
	digest, unused := keep.Digest(), []tokenToRevoke{}
	if err := t.List(&unused, selectTokenToRevoke+`
		WHERE a.user_id = ? AND a.name = ? AND a.last_used_at IS NULL AND a.revoked_at IS NULL AND a.digest <> ?`,
		first.User, bootstrapToken, digest[:]); err != nil {
		return err
	}
	for _, token := range unused {
		if err := s.revokeToken(t, access.System(token.Organization), token); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) createBootstrapToken(t *tx, first firstOperator, o Options) error {
	var expiresAt *int64
	if o.BootstrapLife > 0 {
		expiresAt = new(time.UnixMilli(t.Now()).Add(o.BootstrapLife).UnixMilli())
	}
	_, err := s.makeToken(t, access.System(first.Organization), first.User, first.Organization, o.Bootstrap, bootstrapToken, expiresAt)
	return err
}
