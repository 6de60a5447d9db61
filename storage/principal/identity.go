package principal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// PrincipalByIdentity returns the principal of an identity that another issuer has verified. The user has the subject as external id. If
// there is none, it is the user with the verified e-mail address and without an external id. The first sign-in by e-mail makes the subject
// the user's external id. So a person who gets the address later does not become this user. The organization is the one that the issuer
// names; if none, the user's only organization; else the named one, by its id or its external id; if the user does not belong to it, one
// where the user's role may act in others, or the oldest. Faults: Unauthenticated with the code unknown_user, subject_mismatch,
// user_inactive or not_a_member; Malformed with the code organization_required if a name is needed and empty.
func (r *Reader) PrincipalByIdentity(ctx context.Context, i access.Identity, named string) (access.Principal, error) {
	key := identityKey(i, named)
	if p := r.cache.identities.find(r.cache.generation.Load(), key); p != nil {
		return p.Principal, nil
	}
	p, err := r.readIdentity(ctx, i, named, false)
	if err != nil {
		return access.Principal{}, err
	}
	r.cache.identities.keep(key, p)
	return p.Principal, nil
}

// PrincipalToSignIn is PrincipalByIdentity for a sign-in, which names no organization. If the issuer names none either, it is the
// oldest organization of the user.
func (r *Reader) PrincipalToSignIn(ctx context.Context, i access.Identity) (access.Principal, error) {
	p, err := r.readIdentity(ctx, i, "", true)
	if err != nil {
		return access.Principal{}, err
	}
	return p.Principal, nil
}

// readIdentity reads the principal of an identity in its organizationOf.
func (r *Reader) readIdentity(ctx context.Context, i access.Identity, named string, oldest bool) (*knownPrincipal, error) {
	for range maxBindings {
		generation := r.cache.generation.Load()
		user, bound, err := r.userOf(ctx, i)
		if err != nil {
			return nil, err
		}
		row, err := r.organizationOf(ctx, user, i, named, oldest)
		if err != nil {
			return nil, err
		}
		p, err := r.readPrincipal(ctx, memberPrincipal, refusedIdentity, user, row)
		if err != nil {
			return nil, err
		}
		if bound {
			p.generation = generation
			return p, nil
		}
		if err := r.bind(ctx, p.Principal, i); err != nil {
			return nil, err
		}
	}
	return nil, fault.New(fault.Unavailable, "storage_unavailable", "The user of this token is being changed at the moment; try again.")
}

// maxBindings limits the tries of a sign-in by e-mail while other requests change the same user. The first try binds the subject,
// the second reads the user again, and the third allows for one change in between.
const maxBindings = 3

func identityKey(i access.Identity, named string) access.Digest {
	var b []byte
	for _, part := range []string{i.Subject, i.Email, i.Organization, named} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return sha256.Sum256(b)
}

// FirstEmail is the e-mail address of the first operator of a new instance. No identity is matched by it: it is the same in every
// instance, so it identifies nobody.
const FirstEmail = "admin@localhost"

// userOf returns the row id of the identity's user. bound says that the user was found by the subject, not by the e-mail address.
func (r *Reader) userOf(ctx context.Context, i access.Identity) (row int64, bound bool, err error) {
	if !access.ValidExternalID(i.Subject) {
		return 0, false, unknownUser(errors.New("its sub cannot be an external_id, which has 1 to 255 visible ASCII characters and not the form of an id of Keyhook"))
	}
	const columns = "SELECT id, public_id, is_active, external_id FROM users WHERE "
	found, err := sqlite.One[access.User](r.reads.In(ctx), "user", columns+"external_id = ?", i.Subject)
	if fault.KindOf(err) == fault.NotFound && i.Email != "" && !strings.EqualFold(i.Email, FirstEmail) {
		found, err = sqlite.One[access.User](r.reads.In(ctx), "user", columns+"email = ? AND built_in = 0", i.Email)
	}
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return 0, false, unknownUser(errors.New("no user has its sub as external_id, and no user without an external_id has its verified email"))
	case err != nil:
		return 0, false, err
	case found.ExternalID != nil && *found.ExternalID != i.Subject:
		return 0, false, fault.New(fault.Unauthenticated, "subject_mismatch",
			"The user with this token's e-mail address has a different external_id than the token's sub.").Because(errors.New("the user with its email has another external_id than its sub"))
	case !found.IsActive:
		return 0, false, refusedIdentity.inactive(found.ID, false)
	}
	return found.RowID, found.ExternalID != nil, nil
}

func unknownUser(why error) error {
	return fault.New(fault.Unauthenticated, "unknown_user",
		"The user of this token is not known here; an operator can create one with the token's sub as external_id.").Because(why)
}

// organizationOf returns the organization in which the user of an identity acts: the one that the issuer names, the only or the oldest
// one of the user, or the named one.
func (r *Reader) organizationOf(ctx context.Context, user int64, i access.Identity, named string, oldest bool) (row int64, err error) {
	if i.Organization != "" {
		row, err := r.membershipNamed(ctx, user, i.Organization)
		if fault.KindOf(err) == fault.NotFound {
			err = errNoMember("The organization that this token names is unknown, or the user is not a member of it.")
		}
		return row, err
	}
	rows, err := sqlite.All[int64](r.reads.In(ctx), `
		SELECT m.organization_id FROM memberships m CROSS JOIN organizations o ON o.id = m.organization_id
		WHERE m.user_id = ? AND o.closed_at IS NULL ORDER BY m.organization_id LIMIT 2`, user)
	switch {
	case err != nil:
		return 0, err
	case len(rows) == 0:
		return 0, errNoMember("The user of this token is not a member of any organization.")
	case len(rows) == 1 || oldest:
		return rows[0], nil
	case named == "":
		return 0, fault.New(fault.Malformed, "organization_required", "The user of this token belongs to several organizations.")
	}
	row, err = r.membershipNamed(ctx, user, named)
	if fault.KindOf(err) == fault.NotFound { // a later check asks whether the role in this one permits to act there
		err = r.reads.Get(ctx, &row, `
			SELECT coalesce((
				SELECT m.organization_id FROM memberships m CROSS JOIN organizations o ON o.id = m.organization_id CROSS JOIN roles r ON r.id = m.role_id
				WHERE m.user_id = ?1 AND o.closed_at IS NULL AND (r.name = ?2 OR EXISTS (
					SELECT 1 FROM role_permissions g JOIN permissions v ON v.id = g.permission_id WHERE g.role_id = r.id AND v.key = ?3))
				ORDER BY m.organization_id LIMIT 1), ?4)`, user, access.RoleOperator, access.PlatformActAs, rows[0])
	}
	return row, err
}

// membershipNamed returns the row id of an organization of the user, by its id or its external id. Faults: NotFound if the user is not
// a member.
func (r *Reader) membershipNamed(ctx context.Context, user int64, named string) (int64, error) {
	return sqlite.One[int64](r.reads.In(ctx), "organization", `
		SELECT organization_id FROM memberships WHERE user_id = ? AND organization_id =
			(SELECT id FROM organizations`+publicid.WhereNamed(access.OrganizationID, named)+`)`, user, named)
}

func errNoMember(message string) error {
	return fault.New(fault.Unauthenticated, "not_a_member", "%s", message)
}
