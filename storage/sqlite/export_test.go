package sqlite

import "context"

// FailRead ends the transaction like SQLite after a failed read, and returns an error of SQLite.
func (t *Tx) FailRead() error {
	if _, err := t.conn.ExecContext(background, "ROLLBACK"); err != nil {
		return err
	}
	var none int
	return t.Get(&none, "SELECT * FROM unreadable")
}

// Together runs writes in one transaction and returns their errors. Run must not have been called.
func (f *File) Together(fns ...func(*Tx) error) []error { return f.together(Work{}, fns) }

// TogetherWhole is Together for writes that cannot be undone alone.
func (f *File) TogetherWhole(fns ...func(*Tx) error) []error {
	return f.together(Work{Whole: true}, fns)
}

// TogetherOnReserve is Together on a full disk, for writes of a payer that may use the reserve.
func (f *File) TogetherOnReserve(payer int64, fns ...func(*Tx) error) []error {
	f.spendReserve()
	return f.together(Work{Payer: payer, Reserve: true}, fns)
}

// SpendReserve uses the reserve while no problem of the disk is known, as when a probe ends the problem at that moment.
func (f *File) SpendReserve() bool { return f.spendReserve() }

// HoldReserveAgain makes the reserve again, as after the end of a full disk. It reports whether there is one.
func (f *File) HoldReserveAgain() bool {
	f.holdReserveAgain()
	return !f.reserve.spent.Load()
}

func (f *File) together(w Work, fns []func(*Tx) error) []error {
	batch, errs := make([]*queuedWrite, len(fns)), make([]error, len(fns))
	for i, fn := range fns {
		batch[i] = newQueuedWrite(w, fn)
	}
	f.commit(batch)
	for i, w := range batch {
		errs[i] = w.err
	}
	return errs
}

// Spent runs writes in one transaction and returns what each has cost. Run must not have been called.
func (f *File) Spent(fns ...func(*Tx) error) []int {
	batch, spent := make([]*queuedWrite, len(fns)), make([]int, len(fns))
	for i, fn := range fns {
		batch[i] = newQueuedWrite(Work{}, fn)
	}
	f.commit(batch)
	for i, w := range batch {
		spent[i] = w.spent
	}
	return spent
}

// CheckLater checks a file that is too large for a check in Open. Run must have been called.
func (f *File) CheckLater(ctx context.Context) error {
	later := &File{inspection: inspection{o: f.o}, failures: f.failures, unchecked: true} // f is running and has done its check
	return later.checkLater(ctx)
}

// WhileChecking sets the function that cancels the check of a table.
func (f *File) WhileChecking(cancel context.CancelFunc) { f.checking.Store(&cancel) }

// Checkpoint makes a checkpoint, as the watch of the file does.
func (f *File) Checkpoint(ctx context.Context) error { return f.checkpoint(ctx, nil) }
