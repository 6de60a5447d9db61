package subscription

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// RotateSecret gives a subscription a new secret, or the one of r, and returns it only this once. Every attempt that begins later signs
// with it. During the overlap, the old secret signs too. Faults: NotFound; Conflict if the overlap of the last rotation is not over and
// r.Force is false.
func (s *Subscriptions) RotateSecret(ctx context.Context, by access.Actor, organization int64, id string, r webhook.Rotation) (webhook.Subscription, webhook.Secret, error) {
	secret := r.Secret.OrNew()
	sealed := s.keys.Seal([]byte(secret.Reveal()), id)
	work := sqlite.Work{Payer: organization, Measure: s.audited(organization, 0, access.SecretRotated)}
	rotated, err := sqlite.Returning(ctx, s.file, work, func(t *sqlite.Tx) (sub webhook.Subscription, err error) {
		row, err := history.ReadSubscriptionRow(t, organization, id)
		if err != nil {
			return sub, err
		}
		var until int64 // when the previous secret stops signing; 0 if it does not sign
		if err := t.Get(&until, `
			SELECT CASE WHEN previous_secret IS NOT NULL AND previous_until > ? THEN previous_until ELSE 0 END
			FROM subscriptions WHERE id = ?`, t.Now(), row); err != nil {
			return sub, fmt.Errorf("read overlap: %w", err)
		}
		if until > 0 && !r.Force { // receivers may still rely on the previous secret
			return sub, fault.New(fault.Conflict, "overlap_in_progress",
				"The previous secret still signs until %s, as the last rotation promised.", webhook.AppendTime(nil, until))
		}
		if err := s.memory.Quotas.Require(t, organization, quota.PerChange); err != nil {
			return sub, err
		}
		if err := t.Exec(`
			UPDATE subscriptions SET previous_secret = CASE WHEN ?1 > 0 THEN secret END, previous_until = CASE WHEN ?1 > 0 THEN ?2 ELSE 0 END,
				secret = ?3, epoch = epoch + 1, updated_at = ?4
			WHERE id = ?5`, r.Overlap.Milliseconds(), t.Now()+r.Overlap.Milliseconds(), sealed, t.Now(), row); err != nil {
			return sub, err
		}
		s.queue.SubscriptionsChanged(t, row)
		if sub, err = s.queue.SubscriptionIn(t, organization, id); err != nil {
			return sub, err
		}
		details := map[string]any{"url_host": webhook.URLHost(sub.URL), "overlap_seconds": int64(r.Overlap / time.Second), "ended_overlap": until > 0}
		if !r.Secret.IsZero() {
			details["secret_imported"] = true
		}
		return sub, s.queue.Audit(t, by, organization, access.SecretRotated, audit.Subscription(sub.ID, sub.RowID), details)
	})
	return rotated, secret, err
}
