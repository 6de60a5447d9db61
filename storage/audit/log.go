package audit

import (
	"encoding/json"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Log is where an audit event is written.
type Log struct {
	Organization int64  // row id
	ID           string // public id
	Closed       bool   // its log has no personal data any more
}

// Write writes an audit event to a log, and returns the data of the event that publishes it. details must not contain a secret.
func (l Log) Write(t *sqlite.Tx, by access.Actor, eventType string, about Target, details map[string]any) (Data, error) {
	if !access.IsAuditType(eventType) {
		return Data{}, fmt.Errorf("audit event type %q is not in the list of package access, so it is not reserved", eventType)
	}
	by, err := ActorForLog(t, by)
	if err != nil {
		return Data{}, err
	}
	if l.Closed {
		by, details = ofClosed(by, eventType, details)
	}
	if details == nil {
		details = map[string]any{}
	}
	text, err := json.Marshal(details)
	if err != nil {
		return Data{}, fmt.Errorf("encode audit details: %w", err)
	}
	if err := t.Exec(`
		INSERT INTO audit_events (organization_id, type, actor_type, actor_id, actor_name, target_type, target_id, ip, request_id, at, details)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		l.Organization, eventType, by.Type, by.ID, by.Name, about.Type, about.ID, by.IP, by.RequestID, t.Now(), string(text)); err != nil {
		return Data{}, fmt.Errorf("write audit event: %w", err)
	}
	actor := Actor{Type: by.Type, ID: access.NullIfEmpty(by.ID), Name: by.Name}
	return Data{Actor: actor, Target: about, Details: text}, trackApplied(t, by, l.ID, eventType, about, details)
}

// ActorForLog returns an actor as the log may show it: a request may have begun before its user was erased.
func ActorForLog(t *sqlite.Tx, by access.Actor) (access.Actor, error) {
	if by.Type != "user" || by.Authority.User == 0 {
		return by, nil
	}
	var erased bool
	if err := t.Get(&erased, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ? AND erased_at IS NOT NULL)", by.Authority.User); err != nil {
		return by, fmt.Errorf("read actor: %w", err)
	}
	if erased {
		by.Name, by.IP = access.ErasedUserName, ""
	}
	return by, nil
}

// trackApplied keeps the list of what `keyhook apply` has created and nobody has deleted since, so that apply deletes nothing else.
// The log learns of every creation and deletion in the transaction of the change, so an object is in the list if and only if it exists.
// organization is the public id of the organization of a member.
func trackApplied(t *sqlite.Tx, by access.Actor, organization, eventType string, about Target, details map[string]any) (err error) {
	kind, key := about.Type, about.ID
	if eventType == access.MemberSet || eventType == access.MemberRemoved {
		kind, key = access.KindMember, access.MemberKey(organization, about.ID)
	}
	switch eventType {
	case access.PlanCreated, access.PermissionCreated, access.RoleCreated, access.EventTypeCreated,
		access.OrganizationCreated, access.UserCreated, access.SubscriptionCreated, access.MemberSet:
		if _, wasMember := details["previous_role"]; by.Applying && !wasMember {
			err = t.Exec("INSERT INTO applied (kind, key) VALUES (?, ?)", kind, key)
		}
	case access.PlanDeleted, access.PermissionDeleted, access.RoleDeleted, access.EventTypeDeleted,
		access.OrganizationDeleted, access.UserDeleted, access.SubscriptionDeleted, access.MemberRemoved:
		err = t.Exec("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key)
	case access.OrganizationClosed: // 0 comes after the slash
		err = t.Exec(`
			DELETE FROM applied
			WHERE kind = 'organization' AND key = ?1 OR kind = 'member' AND key > ?1 || '/' AND key < ?1 || '0' OR kind = 'subscription' AND key IN (
				SELECT s.public_id FROM organizations o JOIN subscriptions s ON s.organization_id = o.id WHERE o.public_id = ?1)`, key)
	case access.UserErased: // its memberships end later
		err = t.Exec(`
			DELETE FROM applied
			WHERE kind = 'user' AND key = ?1 OR kind = 'member' AND key IN (
				SELECT o.public_id || '/' || u.public_id FROM users u JOIN memberships m ON m.user_id = u.id JOIN organizations o ON o.id = m.organization_id
				WHERE u.public_id = ?1)`, key)
	}
	if err != nil {
		return fmt.Errorf("track what apply created, after %s of %s %s: %w", eventType, kind, key, err)
	}
	return nil
}
