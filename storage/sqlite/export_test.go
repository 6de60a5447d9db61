package sqlite

import "context"

// FailRead ends the transaction as SQLite does when the disk fails a read, and returns an error of SQLite's.
func (t *Tx) FailRead() error {
	if _, err := t.conn.ExecContext(background, "ROLLBACK"); err != nil {
		return err
	}
	var none int
	return t.Get(&none, "SELECT * FROM unreadable")
}

// Together has jobs share a transaction and returns their errors. Run must not have been called.
func (f *File) Together(fns ...func(*Tx) error) []error {
	batch, errs := make([]*job, len(fns)), make([]error, len(fns))
	for i, fn := range fns {
		batch[i] = newJob(Work{}, fn)
	}
	f.commit(batch)
	for i, j := range batch {
		errs[i] = j.err
	}
	return errs
}

// CheckLater checks a file as one that is too large to be checked at its opening. Run must have been called.
func (f *File) CheckLater(ctx context.Context) error {
	later := &File{o: f.o, failures: f.failures, unchecked: true} // f runs, and has looked already
	return later.checkLater(ctx)
}

// WhileChecking has cancel called where a check of a table would be ended.
func (f *File) WhileChecking(cancel context.CancelFunc) { f.checking.Store(&cancel) }
