package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// upgrades are how a file of an older schema comes to today's.
type upgrades struct {
	steps   []step
	reached func(point string) // told where an upgrade is; nil is nobody
}

// step takes a file from one schema version to the next. It runs without foreign keys, so that it can rebuild a table;
// they are checked at the end. It must leave behind what schema.sql says, name by name: a column that is added to a table
// comes last in it. The table instance stays as it is, for it is read before.
type step func(*tx) error

// released are the steps of this version: the first takes schema 1 to schema 2, and so on.
var released = [version - 1]step{}

// knownUpgrades are those of this version, unless a test says otherwise.
func (o Options) knownUpgrades() upgrades {
	if o.upgrades != nil {
		return *o.upgrades
	}
	return upgrades{steps: released[:]}
}

// version is the schema version (PRAGMA user_version) that the steps lead to.
func (u upgrades) version() int64 { return int64(len(u.steps)) + 1 }

func (u upgrades) reach(point string) {
	if u.reached != nil {
		u.reached(point)
	}
}

// upgrade takes a file of an older schema to today's. It makes a copy first; then all steps are one transaction, so
// that after a crash at any point the file is the old one or the new one. Where there is nothing to do it ends what an
// upgrade that was cut off has left.
func (s *Store) upgrade(ctx context.Context, o Options) error {
	if s.outdated == 0 {
		_, err := s.nameCopy()
		return err
	}
	began := time.Now()
	if o.expendable {
		if err := s.migrate(ctx, o.Schema); err != nil {
			return fmt.Errorf("upgrade from schema %d to %d: %w", s.outdated, s.upgrades.version(), err)
		}
		return nil
	}
	if err := s.copyBefore(ctx); err != nil {
		return fmt.Errorf("make a copy before the upgrade from schema %d to %d: %w; the file is as it was", s.outdated, s.upgrades.version(), err)
	}
	s.upgrades.reach("copied")
	if err := s.migrate(ctx, o.Schema); err != nil {
		if failed := s.condition.ended(); failed != nil { // the copy stays, for what is in the file nobody knows
			return fmt.Errorf("upgrade from schema %d to %d: %w; the next start finds the file as it was, or upgraded", s.outdated, s.upgrades.version(), failed)
		}
		return fmt.Errorf("upgrade from schema %d to %d: %w; the file is as it was, and the version before can run on it",
			s.outdated, s.upgrades.version(), errors.Join(err, s.dropCopy()))
	}
	s.upgrades.reach("committed")
	name, err := s.nameCopy()
	if err != nil {
		return err
	}
	s.upgrades.reach("named")
	s.log.Info("the database was upgraded", "from", s.outdated, "to", s.upgrades.version(), "copy_of_before", name, "took", time.Since(began))
	return nil
}

// migrate runs the steps on a connection of its own.
func (s *Store) migrate(ctx context.Context, schema string) (err error) {
	pragmas := slices.Clone(writerPragmas(Full))
	for i := range pragmas {
		if pragmas[i].name == "foreign_keys" { // which cannot be switched in a transaction
			pragmas[i].value, pragmas[i].reads = "off", "0"
		}
	}
	name, err := dsn(s.path, pragmas)
	if err != nil {
		return err
	}
	db, err := connect(ctx, name, 1, pragmas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	t := newTx(conn)
	defer func() {
		for _, st := range t.statements {
			err = errors.Join(err, st.Close())
		}
		err = errors.Join(err, conn.Close())
	}()
	t.now = time.Now().UnixMilli()
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	s.upgrades.reach("begun")
	if err := s.takeSteps(ctx, t, schema); err != nil {
		return errors.Join(err, t.rollback())
	}
	s.upgrades.reach("checked")
	if _, err := t.exec("COMMIT"); err != nil {
		s.condition.note(byCommit, err)
		return errors.Join(fmt.Errorf("commit: %w", err), t.rollback())
	}
	return nil
}

// takeSteps takes the steps that the file lacks and checks that they have led to today's schema.
func (s *Store) takeSteps(ctx context.Context, t *tx, schema string) error {
	for from := s.outdated; from < s.upgrades.version(); from++ {
		if err := t.attempt(s.upgrades.steps[from-1]); err != nil {
			return fmt.Errorf("step to schema %d: %w", from+1, err)
		}
	}
	orphans, err := orphans(ctx, t.conn)
	if err != nil {
		return err
	}
	if len(orphans) > 0 {
		return fmt.Errorf("rows of %v would refer to nothing", orphans)
	}
	have, err := objects(ctx, t.conn)
	if err != nil {
		return err
	}
	if err := compareSchema(ctx, schema, have); err != nil {
		return err
	}
	_, err = t.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", s.upgrades.version()))
	return err
}

// orphans returns the tables with rows whose foreign keys name no row.
func orphans(ctx context.Context, db sqlx.QueryerContext) ([]string, error) {
	var tables []string
	err := sqlx.SelectContext(ctx, db, &tables, `SELECT DISTINCT "table" FROM pragma_foreign_key_check`)
	if err != nil {
		return nil, fmt.Errorf("check foreign keys: %w", err)
	}
	return tables, nil
}
