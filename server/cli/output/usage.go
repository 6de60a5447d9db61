package output

// UsageError is a mistake in the command line that is found after the command has begun. The command then ends with the
// exit code for wrong usage.
type UsageError struct{ Err error }

// Error returns the text of the mistake.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }
