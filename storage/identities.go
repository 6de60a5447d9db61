package storage

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

const memberPrincipal = `SELECT` + principalColumns + ` FROM memberships c` + principalJoins + ` WHERE c.user_id = ? AND c.organization_id = ?`

// refusedIdentity is the user of an identity that may not act; the identity itself was verified before.
var refusedIdentity = refusals{"token", "token", "The user of this token", "user_inactive"}

// PrincipalByIdentity returns for whom one acts that another issuer vouches for, and with what permissions, at this
// moment. The user is the one whose external id is the subject, else one without an external id that has the verified
// e-mail address. The organization is the one that the issuer names; else the user's only one; else the named, a public
// id, which may be empty.
//
// Faults: Unauthenticated with the code unknown_user, user_inactive or not_a_member; NotFound where the named is none of
// the user's; Malformed with the code organization_required where it is needed and empty.
func (s *Store) PrincipalByIdentity(ctx context.Context, i access.Identity, named string) (access.Principal, error) {
	generation, key := s.principals.generation.Load(), asked(i, named)
	p := s.principals.identities.find(generation, key)
	if p == nil {
		user, err := s.userOf(ctx, i)
		if err != nil {
			return access.Principal{}, err
		}
		organization, err := s.organizationOf(ctx, user, i, named)
		if err != nil {
			return access.Principal{}, err
		}
		if p, err = s.readPrincipal(ctx, memberPrincipal, refusedIdentity, user, organization); err != nil {
			return access.Principal{}, err
		}
		p.generation = generation
		s.principals.identities.keep(key, p)
	}
	return p.Principal, nil
}

// asked is what the cache knows an answer by.
func asked(i access.Identity, named string) access.Digest {
	var b []byte
	for _, part := range []string{i.Subject, i.Email, i.Organization, named} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return sha256.Sum256(b)
}

// userOf returns the row id of the identity's user. An address that belongs to a user with another external id says
// nothing: the issuer may have given it to somebody else since. Nor does the one that the first operator was founded with,
// which everybody knows: it stands on no machine in particular, so it is nobody's to prove.
func (s *Store) userOf(ctx context.Context, i access.Identity) (row int64, err error) {
	var found struct {
		Row      int64 `db:"id"`
		IsActive bool  `db:"is_active"`
		Taken    bool  `db:"taken"`
	}
	const columns = "SELECT id, is_active, external_id IS NOT NULL AND external_id <> ?1 AS taken FROM users WHERE "
	if err = s.get(ctx, &found, columns+"external_id = ?1", i.Subject); errors.Is(err, sql.ErrNoRows) && i.Email != "" && !strings.EqualFold(i.Email, firstEmail) {
		err = s.get(ctx, &found, columns+"email = ?2 AND built_in = 0", i.Subject, i.Email)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, unknownUser(errors.New("no user has its sub as external_id, nor its verified email without an external_id"))
	case err != nil:
		return 0, err
	case found.Taken:
		return 0, unknownUser(errors.New("the user with its email has another external_id than its sub"))
	case !found.IsActive:
		return 0, refusedIdentity.inactive()
	}
	return found.Row, nil
}

func unknownUser(why error) error {
	return fault.New(fault.Unauthenticated, "unknown_user",
		"The user of this token is not known here; an operator can create one with the token's sub as external_id.").Because(why)
}

// organizationOf returns the row id of the organization that a user acts in.
func (s *Store) organizationOf(ctx context.Context, user int64, i access.Identity, named string) (row int64, err error) {
	if i.Organization != "" {
		err := s.get(ctx, &row, `
			SELECT organization_id FROM memberships WHERE user_id = ?2 AND organization_id =
				coalesce((SELECT id FROM organizations WHERE public_id = ?1), (SELECT id FROM organizations WHERE external_id = ?1))`,
			i.Organization, user)
		return row, noMember(err, "The organization that this token names is not known here, or its user is no member of it.")
	}
	var rows []int64
	if err := s.list(ctx, &rows, "SELECT organization_id FROM memberships WHERE user_id = ? LIMIT 2", user); err != nil {
		return 0, err
	}
	switch {
	case len(rows) == 0:
		return 0, noMember(sql.ErrNoRows, "The user of this token is no member of any organization.")
	case len(rows) == 1:
		return rows[0], nil
	case named == "":
		return 0, fault.New(fault.Malformed, "organization_required",
			"The user of this token belongs to several organizations: name one with the header X-Organization-Id.")
	}
	err = s.get(ctx, &row, `
		SELECT m.organization_id FROM memberships m JOIN organizations o ON o.id = m.organization_id
		WHERE o.public_id = ? AND m.user_id = ?`, named, user)
	return row, missing(err, "organization")
}

// noMember turns "no rows" into a refusal. Other errors stay.
func noMember(err error, message string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.Unauthenticated, "not_a_member", "%s", message)
	}
	return err
}
