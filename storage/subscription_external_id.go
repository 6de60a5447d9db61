package storage

import (
	"context"

	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// SubscriptionID returns the id of the subscription with an external id. Faults: NotFound.
func (s *Store) SubscriptionID(ctx context.Context, organization int64, externalID string) (id string, err error) {
	err = s.get(ctx, &id, `
		SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND deleted_at IS NULL`, organization, externalID)
	return id, sqlite.Missing(err, "subscription")
}

// setExternalID sets the external id of a subscription; an empty one removes it. Faults: Conflict if another subscription of the
// organization has it.
func setExternalID(t *tx, organization int64, sub *webhook.Subscription, externalID string) error {
	if externalID == "" {
		sub.ExternalID = nil
		return nil
	}
	sub.ExternalID = &externalID
	return directory.RefuseTaken(t.Tx, "subscription", "external_id", `
		SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND id <> ?`, organization, externalID, sub.RowID)
}
