package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The personal data of a user is in the row of the user, and copies of it are in the history: the name of the actor in audit
// events, the details of audit events about the user, the events that published both, and what receivers answered to those. Texts
// that people write elsewhere, such as the names of API keys or the data of events, belong to the organization.

// erasedText replaces an erased text in the details of audit events.
const erasedText = "erased"

// pausedBy is how the last error of a subscription begins that a user has deactivated; see webhook.Health.Deactivate.
const pausedBy = "deactivated by "

// userErased is called in the transaction that erases a user, while the memberships are still there. It removes the name from the
// subscriptions that are paused. For other organizations and earlier names, the audit log says which these are; see cleanPaused.
func (s *Store) userErased(t *tx, was access.User) error {
	s.cleanAfter(t.Tx)
	n, err := t.Affected(`
		UPDATE subscriptions INDEXED BY subscriptions_paused SET last_error = ?1
		WHERE paused = 1 AND last_error = ?2 AND organization_id IN (SELECT organization_id FROM memberships WHERE user_id = ?3)`,
		pausedBy+access.ErasedUserName, pausedBy+was.Name, was.RowID)
	if err == nil && n > 0 {
		s.announceChange(t)
	}
	return err
}

// present returns an actor as the log may show it: a request may have begun before its user was erased.
func (t *tx) present(by access.Actor) (access.Actor, error) {
	if by.Type != "user" || by.Authority.User == 0 {
		return by, nil
	}
	var erased bool
	if err := t.GetBeside(&erased, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ? AND erased_at IS NOT NULL)", by.Authority.User); err != nil {
		return by, fmt.Errorf("read actor: %w", err)
	}
	if erased {
		by.Name, by.IP = access.ErasedUserName, ""
	}
	return by, nil
}

// erasedUsers are the public ids of users whose data is removed from the history.
type erasedUsers []string

// list returns the ids as a JSON array.
func (u erasedUsers) list() string {
	text, _ := json.Marshal([]string(u)) // strings always encode
	return string(text)
}

// cleanUsers removes the copies of the personal data of erased users. One pass over the history removes those of all.
func (s *Store) cleanUsers(ctx context.Context, users []access.User) error {
	if len(users) == 0 {
		return nil
	}
	var erased erasedUsers
	pause := s.pauses(ctx)
	for _, u := range users {
		erased = append(erased, u.ID)
		if err := s.EndUser(ctx, u.RowID, pause); err != nil {
			return err
		}
	}
	if err := s.cleanAuditEvents(ctx, erased, pause); err != nil {
		return fmt.Errorf("audit events: %w", err)
	}
	if err := s.cleanPublished(ctx, erased, pause); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if err := s.vacuum(ctx); err != nil {
		return fmt.Errorf("give back pages: %w", err)
	}
	for _, u := range users {
		if err := s.UserCleaned(ctx, u.RowID); err != nil {
			return err
		}
		s.log.Info("the erasure of a user is complete", "user", u.ID)
	}
	return nil
}

const (
	// auditSlice and eventSlice are how many rows one read looks at.
	auditSlice = 2_000
	eventSlice = 5_000
	// cleanBatch limits the rows that one transaction rewrites.
	cleanBatch = 200
)

// auditLine is an audit event as far as it can have personal data.
type auditLine struct {
	RowID      int64  `db:"id"`
	Type       string `db:"type"`
	ActorType  string `db:"actor_type"`
	ActorID    string `db:"actor_id"`
	TargetType string `db:"target_type"`
	TargetID   string `db:"target_id"`
	Details    string `db:"details"`
}

// cleanAuditEvents removes personal data from the audit log.
func (s *Store) cleanAuditEvents(ctx context.Context, erased erasedUsers, pause func() error) error {
	ends := sliceEnds(ctx, s, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM audit_events WHERE id > ? ORDER BY id LIMIT ?)", auditSlice)
	for after, last := range ends.all() {
		var lines []auditLine
		if err := s.logs.List(ctx, &lines, `
			SELECT a.id, a.type, a.actor_type, a.actor_id, a.target_type, a.target_id, a.details FROM audit_events a
			WHERE a.id > ?1 AND a.id <= ?2
			  AND EXISTS (SELECT 1 FROM json_each(?3) j WHERE j.value IN (a.actor_id, a.target_id) OR instr(a.details, j.value))`,
			after, last, erased.list()); err != nil {
			return err
		}
		for batch := range slices.Chunk(lines, cleanBatch) {
			if err := s.change(ctx, func(t *tx) error { return s.cleanAuditBatch(t, erased, batch) }); err != nil {
				return err
			}
		}
		if err := pause(); err != nil {
			return err
		}
	}
	return ends.err
}

func (s *Store) cleanAuditBatch(t *tx, erased erasedUsers, lines []auditLine) error {
	for _, line := range lines {
		byErased := line.ActorType == "user" && slices.Contains(erased, line.ActorID)
		about := auditTarget{Type: line.TargetType, ID: line.TargetID}
		details, err := erased.clean([]byte(line.Details), line.Type, byErased, about)
		if err != nil {
			return fmt.Errorf("audit event %d: %w", line.RowID, err)
		}
		if byErased && line.Type == access.SubscriptionDisabled {
			if err := s.cleanPaused(t, about.ID, line.Details); err != nil {
				return err
			}
		}
		if byErased {
			_, err = t.Exec("UPDATE audit_events SET actor_name = ?, ip = '', details = ? WHERE id = ?", access.ErasedUserName, string(details), line.RowID)
		} else {
			_, err = t.Exec("UPDATE audit_events SET details = ? WHERE id = ?", string(details), line.RowID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanPaused removes a name from the last error of a subscription. The user may have had another name when the audit event with
// these details was written.
func (s *Store) cleanPaused(t *tx, subscription, details string) error {
	var told struct {
		LastError string `json:"last_error"`
	}
	if err := json.Unmarshal([]byte(details), &told); err != nil || !strings.HasPrefix(told.LastError, pausedBy) {
		return err
	}
	n, err := t.Affected("UPDATE subscriptions SET last_error = ? WHERE public_id = ? AND paused = 1 AND last_error = ?",
		pausedBy+access.ErasedUserName, subscription, told.LastError)
	if err == nil && n > 0 {
		s.announceChange(t)
	}
	return err
}

// clean returns the details of an audit event without the personal data of erased users.
func (u erasedUsers) clean(details []byte, eventType string, byErased bool, about auditTarget) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(details, &members); err != nil {
		return nil, fmt.Errorf("read details: %w", err)
	}
	of := ""
	_ = json.Unmarshal(members["user_id"], &of) // another type names no user
	if slices.Contains(u, of) || about.Type == "user" && slices.Contains(u, about.ID) {
		for _, name := range []string{"name", "email", "external_id"} {
			if value, ok := members[name]; ok && string(value) != "null" && string(value) != `""` {
				members[name] = json.RawMessage(`"` + erasedText + `"`)
			}
		}
	}
	lastError := ""
	if byErased && eventType == access.SubscriptionDisabled && json.Unmarshal(members["last_error"], &lastError) == nil && strings.HasPrefix(lastError, pausedBy) {
		members["last_error"] = json.RawMessage(`"` + pausedBy + access.ErasedUserName + `"`)
	}
	return json.Marshal(members)
}

// publishedAudit is an event that publishes an audit event.
type publishedAudit struct {
	RowID        int64  `db:"id"`
	Type         string `db:"type"`
	At           int64  `db:"created_at"`
	Organization string `db:"organization_public_id"`
	Body         []byte `db:"body"`
}

// cleanPublished removes personal data from the events that publish audit events. It replaces their bodies as a whole, so later
// attempts send the new body with a new signature.
func (s *Store) cleanPublished(ctx context.Context, erased erasedUsers, pause func() error) error {
	types, err := json.Marshal(access.AuditTypes())
	if err != nil {
		return err
	}
	ends := sliceEnds(ctx, s, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM events WHERE id > ? ORDER BY id LIMIT ?)", eventSlice)
	for after, last := range ends.all() {
		var events []publishedAudit
		if err := s.logs.List(ctx, &events, `
			SELECT e.id, e.type, e.created_at, o.public_id AS organization_public_id, e.body
			FROM events e CROSS JOIN organizations o ON o.id = e.organization_id
			WHERE e.id > ?1 AND e.id <= ?2 AND e.type IN (SELECT value FROM json_each(?3))
			  AND EXISTS (SELECT 1 FROM json_each(?4) j WHERE instr(e.body, CAST(j.value AS BLOB)))`,
			after, last, string(types), erased.list()); err != nil {
			return err
		}
		for batch := range slices.Chunk(events, cleanBatch) {
			if err := s.cleanPublishedBatch(ctx, erased, batch, pause); err != nil {
				return err
			}
		}
		if err := pause(); err != nil {
			return err
		}
	}
	return ends.err
}

// cleanPublishedBatch replaces the bodies of events, and deletes what receivers answered to the old ones.
func (s *Store) cleanPublishedBatch(ctx context.Context, erased erasedUsers, events []publishedAudit, pause func() error) error {
	if err := s.change(ctx, func(t *tx) error {
		for _, e := range events {
			body, err := s.cleanBody(erased, e)
			if err != nil {
				return fmt.Errorf("event %d: %w", e.RowID, err)
			}
			if _, err := t.Exec("UPDATE events SET body = ? WHERE id = ?", body, e.RowID); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, e := range events {
		if err := s.dropResponses(ctx, e.RowID, pause); err != nil {
			return err
		}
	}
	return nil
}

// cleanBody returns the body of an event without the personal data of erased users.
func (s *Store) cleanBody(erased erasedUsers, e publishedAudit) ([]byte, error) {
	var body struct{ Data publishedData }
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	actor := &body.Data.Actor
	byErased := actor.Type == "user" && actor.ID != nil && slices.Contains(erased, *actor.ID)
	if byErased {
		actor.Name = access.ErasedUserName
	}
	details, err := erased.clean(body.Data.Details, e.Type, byErased, body.Data.Target)
	if err != nil {
		return nil, err
	}
	body.Data.Details = details
	data, err := json.Marshal(body.Data)
	if err != nil {
		return nil, err
	}
	return webhook.AppendEnvelope(nil, s.ids.ID(access.EventID, e.RowID, e.At), e.Type, e.At, e.Organization, data), nil
}

// dropResponses deletes what receivers answered to an event. The answers to attempts in progress are not stored: these attempts may
// have sent the old body.
func (s *Store) dropResponses(ctx context.Context, event int64, pause func() error) error {
	for after := int64(0); ; {
		var deliveries []int64
		if err := s.logs.List(ctx, &deliveries, "SELECT id FROM deliveries WHERE event_id = ? AND id > ? ORDER BY id LIMIT ?", event, after, cleanBatch); err != nil {
			return err
		}
		if len(deliveries) == 0 {
			return nil
		}
		after = deliveries[len(deliveries)-1]
		if err := s.change(ctx, func(t *tx) error {
			var sending []int64
			if err := t.List(&sending, "SELECT d.id FROM json_each(?) j CROSS JOIN deliveries d ON d.id = j.value WHERE d.state >= "+delivery.Sending,
				sqlite.RowList(slices.Values(deliveries))); err != nil {
				return err
			}
			for _, d := range sending {
				t.unwanted[d] = struct{}{}
			}
			_, err := t.Exec(`
				UPDATE attempts SET response_body = '' WHERE response_body <> '' AND id IN (
					SELECT a.id FROM json_each(?) d CROSS JOIN attempts a ON a.id BETWEEN d.value << 8 AND d.value << 8 | 255)`, sqlite.RowList(slices.Values(deliveries)))
			return err
		}); err != nil {
			return err
		}
		if err := pause(); err != nil {
			return err
		}
	}
}

// slices of a long table, by row ids.
type tableSlices struct {
	next func(after int64) (last int64, err error)
	err  error // why the iteration ended early
}

// sliceEnds cuts a table into slices of at most size rows. query returns the last row of the next slice, or 0.
func sliceEnds(ctx context.Context, s *Store, query string, size int) *tableSlices {
	return &tableSlices{next: func(after int64) (last int64, err error) {
		err = s.logs.Get(ctx, &last, query, after, size)
		return last, err
	}}
}

// all yields the row before each slice, and the last row of it.
func (c *tableSlices) all() iter.Seq2[int64, int64] {
	return func(yield func(after, last int64) bool) {
		for after := int64(0); ; {
			last, err := c.next(after)
			if c.err = err; err != nil || last == 0 || !yield(after, last) {
				return
			}
			after = last
		}
	}
}
