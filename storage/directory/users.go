package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const userColumns = `id, public_id, coalesce(email, '') AS email, name, external_id, service_of, is_active, built_in, erased_at, cleaned_at,
	created_at, updated_at, coalesce((SELECT o.name FROM organizations o WHERE o.id = service_of), '') AS service_of_name`

// listedUserColumns has three memberships of the user u, in the order of the list of all.
const listedUserColumns = userColumns + `, (SELECT count(*) FROM memberships m WHERE m.user_id = u.id) AS memberships,
	(SELECT json_group_array(json_object('OrganizationID', public_id, 'Name', name, 'ExternalID', external_id, 'Role', role, 'CreatedAt', created_at)) FROM (
		SELECT o.public_id, o.name, o.external_id, r.name AS role, m.created_at FROM memberships m INDEXED BY memberships_by_user
		CROSS JOIN organizations o ON o.id = m.organization_id CROSS JOIN roles r ON r.id = m.role_id
		WHERE m.user_id = u.id ORDER BY m.organization_id DESC LIMIT 3)) AS newest,
	(SELECT max(at) FROM (SELECT max(last_used_at) AS at FROM access_tokens WHERE user_id = u.id
		UNION ALL SELECT max(last_used_at) FROM api_keys WHERE user_id = u.id
		UNION ALL SELECT max(created_at) FROM sessions WHERE user_id = u.id)) AS last_used_at`

// UserPage lists the users whose name, e-mail address or external id begins with a text, as OrganizationPage does. It leaves out the
// built-in user.
func (d *Directory) UserPage(ctx context.Context, beginning string, before int64, limit int) (access.Page[access.ListedUser], error) {
	list := scan.List[access.ListedUser]{Logs: d.logs, Table: "users u", Columns: listedUserColumns, Where: "u.built_in = 0"}
	const like = `(u.name LIKE ?5 ESCAPE '\' OR u.email LIKE ?5 ESCAPE '\' OR u.external_id LIKE ?5 ESCAPE '\')`
	return beginningWith(ctx, list, like, beginning, before, limit)
}

// User returns the user with an id or an external id. Faults: NotFound.
func (d *Directory) User(ctx context.Context, id string) (access.User, error) {
	return userNamed(d.reads.In(ctx), id)
}

func userNamed(from sqlite.Reader, id string) (access.User, error) {
	return sqlite.One[access.User](from, "user", "SELECT "+userColumns+" FROM users"+publicid.WhereNamed(access.UserID, id), id)
}

// CreateUser creates a user. Faults: Conflict if the e-mail address, in any case, or the external id is taken.
func (d *Directory) CreateUser(ctx context.Context, by access.Actor, u access.User) (access.User, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (access.User, error) {
		return d.createUser(t, by, u)
	})
}

func (d *Directory) createUser(t *sqlite.Tx, by access.Actor, u access.User) (made access.User, err error) {
	if err := requireUniqueUser(t, 0, &u.Email, u.ExternalID); err != nil {
		return made, err
	}
	if made, err = insertUser(t, u); err != nil {
		return made, err
	}
	details := map[string]any{
		"email": access.NullIfEmpty(made.Email), "name": made.Name, "external_id": made.ExternalID, "is_active": made.IsActive,
	}
	if made.IsService() {
		details["kind"] = "service"
	}
	// No cached principal changes: only a user that is bound to its subject is cached, and refusals are not.
	return made, d.hooks.Audit(t, by, 0, access.UserCreated, Target{Type: "user", ID: made.ID}, details)
}

// PutUser changes the name and the e-mail address of the user with an external id. It creates the user if there is none. It changes a
// user by its id too. If nothing changes, it writes nothing. Faults: NotFound for the id of no user; Invalid if a creation lacks the
// name; otherwise those of CreateUser and UpdateUser.
func (d *Directory) PutUser(ctx context.Context, by access.Actor, id string, c access.UserChange) (access.Put[access.User], error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (put access.Put[access.User], err error) {
		before, err := changeableUser(t, id)
		if fault.KindOf(err) == fault.NotFound && !access.LooksLikeID(id) {
			if err := cmp.Or(t.Withdraws(false), needed(map[string]*string{"name": c.Name})); err != nil {
				return put, err
			}
			put.Created, put.Is = true, access.User{Name: *c.Name, ExternalID: &id, IsActive: true}
			access.Set(&put.Is.Email, c.Email)
			put.Is, err = d.createUser(t, by, put.Is)
			return put, err
		}
		put.Is = before
		c = access.UserChange{Name: differing(c.Name, before.Name), Email: differing(c.Email, before.Email)}
		if err != nil || c == (access.UserChange{}) {
			return put, err
		}
		put.Is, err = d.updateUser(t, by, before, c)
		return put, err
	})
}

// UpdateUser changes a user. All credentials of an inactive user are refused from the next request on. Faults: NotFound; Conflict
// if the e-mail address or the external id is taken, and for the last active operator; Invalid for an e-mail address or an external
// id of a service account; Forbidden if the change lets somebody else act as the user, and the user has more permissions than by.
func (d *Directory) UpdateUser(ctx context.Context, by access.Actor, id string, c access.UserChange) (access.User, error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (access.User, error) {
		before, err := changeableUser(t, id)
		if err != nil {
			return before, err
		}
		return d.updateUser(t, by, before, c)
	})
}

func (d *Directory) updateUser(t *sqlite.Tx, by access.Actor, before access.User, c access.UserChange) (changed access.User, err error) {
	var signsIn, ends error
	isEnd := c.IsActive != nil && !*c.IsActive
	if c.Email != nil && *c.Email != "" || c.ExternalID != nil && *c.ExternalID != "" {
		signsIn = maySignIn(before)
	}
	if isEnd {
		ends = requireAnotherOperator(t, before.RowID, 0)
	}
	if err := cmp.Or(t.Withdraws(isEnd), requireUniqueUser(t, before.RowID, c.Email, c.ExternalID), signsIn, mayActAs(t, by, before, c), ends); err != nil {
		return changed, err
	}
	if err := t.ExecGet(&changed, `
		UPDATE users SET email = CASE WHEN ?1 IS NULL THEN email ELSE nullif(?1, '') END, name = coalesce(?2, name),
			external_id = CASE WHEN ?3 IS NULL THEN external_id ELSE nullif(?3, '') END,
			is_active = coalesce(?4, is_active), updated_at = ?5
		WHERE id = ?6 RETURNING `+userColumns, c.Email, c.Name, c.ExternalID, c.IsActive, t.Now(), before.RowID); err != nil {
		return changed, err
	}
	d.OutdatePrincipals(t)
	details := map[string]any{}
	if c.Email != nil {
		details["email"] = access.NullIfEmpty(*c.Email)
	}
	webhook.AddDetail(details, "name", c.Name)
	webhook.AddDetail(details, "external_id", c.ExternalID)
	webhook.AddDetail(details, "is_active", c.IsActive)
	return changed, d.hooks.Audit(t, by, 0, access.UserUpdated, Target{Type: "user", ID: changed.ID}, details)
}

// bindSubject is the principal.Bind of the directory.
func (d *Directory) bindSubject(ctx context.Context, p access.Principal, i access.Identity) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		n, err := t.Affected(`
			UPDATE users SET external_id = ?1, updated_at = ?2
			WHERE id = ?3 AND external_id IS NULL AND email = ?4 AND is_active = 1
			  AND NOT EXISTS (SELECT 1 FROM users WHERE external_id = ?1)`, i.Subject, t.Now(), p.User.RowID, i.Email)
		if err != nil || n == 0 {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, p.Actor("", ""), p.Home.RowID, access.UserUpdated, Target{Type: "user", ID: p.User.ID},
			map[string]any{"external_id": i.Subject, "reason": "first sign-in by e-mail"})
	})
}

// DeleteUser deletes a user. Faults: NotFound; Conflict while the user has a membership or a credential, even a revoked one.
func (d *Directory) DeleteUser(ctx context.Context, by access.Actor, id string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		user, err := changeableUser(t, id)
		if err := cmp.Or(err, refuseIfHas(t, "user", "set is_active to false instead", `
			SELECT 'memberships' WHERE EXISTS (SELECT 1 FROM memberships WHERE user_id = ?1)
			UNION ALL SELECT 'access tokens' WHERE EXISTS (SELECT 1 FROM access_tokens WHERE user_id = ?1)
			UNION ALL SELECT 'API keys' WHERE EXISTS (SELECT 1 FROM api_keys WHERE user_id = ?1)`, user.RowID)); err != nil {
			return err
		}
		if err := t.Exec("DELETE FROM users WHERE id = ?", user.RowID); err != nil {
			return err
		}
		return d.hooks.Audit(t, by, 0, access.UserDeleted, Target{Type: "user", ID: user.ID}, nil)
	})
}

// requireUniqueUser refuses values that another user has. except is the row id of a user who may have them; 0 means none. The
// refusal names all fields that clash, and the user with the external id, or else the user with the e-mail address.
func requireUniqueUser(t *sqlite.Tx, except int64, email, externalID *string) error {
	clashing := []struct {
		Field string `db:"field"`
		ID    string `db:"public_id"`
	}{}
	if err := t.List(&clashing, `
		SELECT 'email' AS field, public_id FROM users WHERE email = ?1 AND id <> ?3
		UNION ALL SELECT 'external_id', public_id FROM users WHERE external_id = ?2 AND id <> ?3`,
		email, externalID, except); err != nil {
		return err
	}
	fields := []string{}
	for _, c := range clashing {
		fields = append(fields, c.Field)
	}
	if len(fields) == 0 {
		return nil
	}
	return alreadyExists("user", clashing[len(clashing)-1].ID, fields...)
}

// requireAnotherOperator refuses to end a user's memberships if no active operator would be left. An organization of 0 means
// the memberships of all organizations, and a user of 0 those of all users.
func requireAnotherOperator(t *sqlite.Tx, user, organization int64) error {
	const operators = `
		SELECT 1 FROM memberships m JOIN roles r ON r.id = m.role_id JOIN users u ON u.id = m.user_id
		JOIN organizations o ON o.id = m.organization_id
		WHERE r.name = ?3 AND u.is_active = 1 AND o.closed_at IS NULL AND `
	const meant = `(?1 IN (0, m.user_id) AND ?2 IN (0, m.organization_id))`
	return sqlite.RefuseIf(t,
		fault.New(fault.Conflict, "last_operator", "This is the last active operator; make another user operator first."),
		"SELECT 1 WHERE EXISTS ("+operators+meant+") AND NOT EXISTS ("+operators+"NOT "+meant+")",
		user, organization, access.RoleOperator)
}

// changeableUser returns the user with an id or an external id, for a change. Faults: NotFound; Conflict for the built-in user and
// for an erased user.
func changeableUser(t *sqlite.Tx, id string) (access.User, error) {
	found, err := personNamed(t, id)
	if err == nil && found.ErasedAt != nil {
		err = fault.New(fault.Conflict, "user_erased", "This user is erased and cannot be used again; create a new user.")
	}
	return found, err
}

// personNamed is changeableUser for a user who may be erased.
func personNamed(t *sqlite.Tx, id string) (access.User, error) {
	found, err := userNamed(t, id)
	return found, cmp.Or(err, refuseBuiltIn(found.BuiltIn, "user", found.Name))
}

func insertUser(t *sqlite.Tx, u access.User) (made access.User, err error) {
	err = t.ExecGet(&made, `
		INSERT INTO users (public_id, email, name, external_id, service_of, is_active, built_in, created_at, updated_at)
		VALUES (?1, nullif(?2, ''), ?3, nullif(?4, ''), ?5, ?6, ?7, ?8, ?8) RETURNING `+userColumns,
		publicid.New(access.UserID), u.Email, u.Name, u.ExternalID, u.ServiceOf, u.IsActive, u.BuiltIn, t.Now())
	return made, err
}
