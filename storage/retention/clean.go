package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// After a user was erased or an organization closed, their data is removed from the history in the background. The row of the user
// or organization is the mark: until it has cleaned_at, every start begins again, and repeating a step changes nothing.

// CleanAfter wakes Clean after the commit of a transaction that erases a user or closes an organization.
func (c *Cleaner) CleanAfter(t *sqlite.Tx) {
	t.OnCommit(func() {
		select {
		case c.toClean <- struct{}{}:
		default:
		}
	})
}

const (
	cleanAgain = time.Second      // the pause while attempts of a closed organization are in progress
	cleanRetry = 10 * time.Second // the pause after a failure
)

// cleaningsPerPass is how many users or organizations one pass cleans.
const cleaningsPerPass = 20

// Clean removes the data of erased users and closed organizations until ctx ends. It has its own goroutine, because it may read all
// events, and the rest of upkeep must not wait.
func (c *Cleaner) Clean(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.toClean:
		}
		for complete := false; !complete; {
			var err error
			if complete, err = c.cleanMarked(ctx); ctx.Err() != nil {
				return
			}
			switch {
			case err != nil:
				c.o.Logger.Error("cannot remove the data of an erased user or a closed organization", "error", err)
				_ = scan.Pause(ctx, cleanRetry) // the loop ends with ctx
			case !complete:
				_ = scan.Pause(ctx, cleanAgain)
			}
		}
	}
}

// cleanMarked cleans some erased users and closed organizations. complete is true if there are none.
func (c *Cleaner) cleanMarked(ctx context.Context) (complete bool, err error) {
	organizations, err := c.o.Directory.OrganizationsToClean(ctx, cleaningsPerPass)
	if err != nil {
		return false, fmt.Errorf("list closed organizations: %w", err)
	}
	busy, failed := false, error(nil) // one that fails does not delay the others
	for _, o := range organizations {
		cleaned, err := c.cleanOrganization(ctx, o.RowID)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("organization %s: %w", o.ID, err))
			continue
		}
		if busy = busy || !cleaned; cleaned {
			c.o.Logger.Info("the closure of an organization is complete", "organization", o.ID)
		}
	}
	users, err := c.o.Directory.UsersToClean(ctx, cleaningsPerPass)
	if err != nil {
		return false, errors.Join(failed, fmt.Errorf("list erased users: %w", err))
	}
	if err := c.cleanUsers(ctx, users); err != nil {
		failed = errors.Join(failed, fmt.Errorf("erased users: %w", err))
	}
	return failed == nil && !busy && len(organizations) < cleaningsPerPass && len(users) < cleaningsPerPass, failed
}

// pauses returns a function that waits as long as the work since its last call took, so that other writers get their turn.
func (c *Cleaner) pauses(ctx context.Context) func() error {
	began := time.Now()
	return func() error {
		err := scan.Pause(ctx, time.Since(began))
		began = time.Now()
		return err
	}
}
