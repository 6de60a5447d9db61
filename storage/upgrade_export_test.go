package storage

import (
	"context"
)

// Step takes a file from one schema version to the next.
type Step = step

// Upgrading is what opens a file in the manner of a later version: one whose schema is that text, and that knows those
// steps to it. reached is told where an upgrade is; nil is nobody.
func Upgrading(o Options, schema string, reached func(point string), steps ...Step) Options {
	o.Schema, o.upgrades = schema, &upgrades{steps: steps, reached: reached}
	return o
}

// Version is the schema version that this binary writes.
const Version = version

// Missing returns the versions that no released step leads to.
func Missing() (versions []int) {
	for i, s := range released {
		if s == nil {
			versions = append(versions, i+2)
		}
	}
	return versions
}

// Objects returns the schema of the file, object by object, as it is compared.
func (s *Store) Objects(ctx context.Context) (map[string]string, error) {
	list, err := objects(ctx, s.keeper)
	if err != nil {
		return nil, err
	}
	named := map[string]string{}
	for _, o := range list {
		named[o.Type+" "+o.Name] = canonical(o.SQL)
	}
	return named, nil
}

// Rows returns how many rows each table has.
func (s *Store) Rows(ctx context.Context) (map[string]int64, error) {
	list, err := objects(ctx, s.keeper)
	if err != nil {
		return nil, err
	}
	rows := map[string]int64{}
	for _, o := range list {
		if o.Type != "table" {
			continue
		}
		var n int64
		if err := s.keeper.GetContext(ctx, &n, `SELECT count(*) FROM "`+o.Name+`"`); err != nil {
			return nil, err
		}
		rows[o.Name] = n
	}
	return rows, nil
}
