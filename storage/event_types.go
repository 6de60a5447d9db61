package storage

import "context"

const (
	countedEvents = 3000 // reading their types takes about 5 ms
	maxEventTypes = 100
)

// EventTypes lists the types of the newest events of an organization, the most frequent first. Without audit events it leaves out
// their types. Faults: Unavailable if too many reads of the organization's logs are running.
func (s *Store) EventTypes(ctx context.Context, organization int64, withoutAudit bool) ([]string, error) {
	end, err := s.logs.Take(ctx, organization)
	if err != nil {
		return nil, err
	}
	defer end()
	found := []string{}
	err = s.logs.List(ctx, &found, `
		SELECT newest.type FROM (
			SELECT e.type FROM events e INDEXED BY events_by_organization WHERE e.organization_id = ? ORDER BY e.id DESC LIMIT ?) newest
		WHERE newest.type NOT IN (SELECT value FROM json_each(?))
		GROUP BY newest.type ORDER BY count(*) DESC, newest.type LIMIT ?`, organization, countedEvents, hiddenTypes(withoutAudit), maxEventTypes)
	return found, err
}
