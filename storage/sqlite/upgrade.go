package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// Step takes a file from one schema version to the next. It runs without foreign keys, so that it can rebuild a table; they
// are checked at the end. It must leave behind what the schema says, name by name: a column that is added to a table comes
// last in it. What Recognize reads stays as it is, for it is read before.
type Step func(*Tx) error

// upgrade takes a file of an older schema to today's. It makes a copy first; then all steps are one transaction, so
// that after a crash at any point the file is the old one or the new one. Where there is nothing to do it ends what an
// upgrade that was cut off has left.
func (f *File) upgrade(ctx context.Context) error {
	if f.outdated == 0 {
		_, err := f.nameCopy()
		return err
	}
	began := time.Now()
	if f.o.Expendable {
		if err := f.migrate(ctx); err != nil {
			return fmt.Errorf("upgrade from schema %d to %d: %w", f.outdated, f.o.version(), err)
		}
		return nil
	}
	if err := f.copyBefore(ctx); err != nil {
		return fmt.Errorf("make a copy before the upgrade from schema %d to %d: %w; the file is as it was", f.outdated, f.o.version(), err)
	}
	f.o.Reached("copied")
	if err := f.migrate(ctx); err != nil {
		if failed := f.failures.ended(); failed != nil { // the copy stays, for what is in the file nobody knows
			return fmt.Errorf("upgrade from schema %d to %d: %w; the next start finds the file as it was, or upgraded", f.outdated, f.o.version(), failed)
		}
		return fmt.Errorf("upgrade from schema %d to %d: %w; the file is as it was, and the version before can run on it",
			f.outdated, f.o.version(), errors.Join(err, f.dropCopy()))
	}
	f.o.Reached("committed")
	name, err := f.nameCopy()
	if err != nil {
		return err
	}
	f.o.Reached("named")
	f.o.Logger.Info("the database was upgraded", "from", f.outdated, "to", f.o.version(), "copy_of_before", name, "took", time.Since(began))
	return nil
}

// migrate runs the steps on a connection of its own.
func (f *File) migrate(ctx context.Context) (err error) {
	pragmas := slices.Clone(writerPragmas(Full))
	for i := range pragmas {
		if pragmas[i].name == "foreign_keys" { // which cannot be switched in a transaction
			pragmas[i].value, pragmas[i].reads = "off", "0"
		}
	}
	db, err := connectTo(ctx, f.o.Path, 1, pragmas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	t := newTx(conn)
	defer func() { err = errors.Join(err, t.close()) }()
	t.now = time.Now().UnixMilli()
	if _, err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	f.o.Reached("begun")
	if err := f.takeSteps(ctx, t); err != nil {
		return errors.Join(err, t.rollback())
	}
	f.o.Reached("checked")
	if _, err := t.Exec("COMMIT"); err != nil {
		f.failures.note(byCommit, err)
		return errors.Join(fmt.Errorf("commit: %w", err), t.rollback())
	}
	return nil
}

// takeSteps takes the steps that the file lacks and checks that they have led to today's schema.
func (f *File) takeSteps(ctx context.Context, t *Tx) error {
	for from := f.outdated; from < f.o.version(); from++ {
		if err := t.attempt(f.o.Upgrades[from-1]); err != nil {
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
	if err := compareSchema(ctx, f.o.Schema, have); err != nil {
		return err
	}
	_, err = t.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", f.o.version()))
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
