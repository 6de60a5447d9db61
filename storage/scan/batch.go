package scan

import (
	"context"
	"time"
)

// Batches calls step until nothing is left. It pauses after each step, and before another one, as long as the step took, so that
// others get their turn. It takes half a processor at most. A positive limit ends it after about that time; complete is false then.
func Batches(ctx context.Context, limit time.Duration, step func() (more bool, err error)) (complete bool, err error) {
	for end := time.Now().Add(limit); ; {
		began := time.Now()
		more, err := step()
		if err != nil || !more {
			return err == nil, err
		}
		if limit > 0 && !time.Now().Before(end) {
			return false, nil
		}
		if err := Pause(ctx, time.Since(began)); err != nil {
			return false, err
		}
	}
}

// Rows is Batches without a limit for rows in the order of their ids. step handles some rows after a row, and returns the last of
// them, or 0 if there is none.
func Rows(ctx context.Context, step func(after int64) (last int64, err error)) error {
	var after int64
	_, err := Batches(ctx, 0, func() (more bool, err error) {
		last, err := step(after)
		after = last
		return last != 0, err
	})
	return err
}
