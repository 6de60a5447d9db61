package retention

import (
	"context"
	"errors"
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

// cleaningsPerPass is how many organizations are cleaned in turn with as many users. One pass over the history looks for these users.
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
				_ = scan.Pause(ctx, cleanRetry) // the loop ends with ctx
			case !complete:
				_ = scan.Pause(ctx, cleanAgain)
			}
		}
	}
}

// atEnd is the position after the last row of a list.
const atEnd = -1

// cleanMarked cleans all closed organizations and all erased users, some of each in turn. One that fails does not stop the others.
// complete is true if nothing is left to do.
func (c *Cleaner) cleanMarked(ctx context.Context) (complete bool, err error) {
	var organization, user int64 // the last ones of this pass
	busy := false
	var failed error
	for (organization != atEnd || user != atEnd) && ctx.Err() == nil {
		if organization != atEnd {
			var waits bool
			organization, waits, failed = c.cleanOrganizations(ctx, organization)
			busy, err = busy || waits, errors.Join(err, failed)
		}
		if user != atEnd {
			user, failed = c.cleanErased(ctx, user)
			err = errors.Join(err, failed)
		}
	}
	return err == nil && !busy, err
}

// cleanOrganizations cleans the next closed organizations after a row, and returns the last one. busy is true if one has an attempt in
// progress.
func (c *Cleaner) cleanOrganizations(ctx context.Context, after int64) (last int64, busy bool, err error) {
	organizations, err := c.o.Directory.OrganizationsToClean(ctx, after, cleaningsPerPass)
	if err != nil {
		return atEnd, false, c.tell(ctx, "cannot list closed organizations", err)
	}
	for _, o := range organizations {
		cleaned, failed := c.cleanOrganization(ctx, o.RowID)
		switch {
		case failed != nil:
			err = errors.Join(err, c.tell(ctx, "cannot remove the data of a closed organization", failed, "organization", o.ID))
		case cleaned:
			c.o.Logger.Info("the closure of an organization is complete", "organization", o.ID)
		default:
			busy = true
		}
	}
	if len(organizations) < cleaningsPerPass {
		return atEnd, busy, err
	}
	return organizations[len(organizations)-1].RowID, busy, err
}

func (c *Cleaner) cleanErased(ctx context.Context, after int64) (last int64, err error) {
	users, err := c.o.Directory.UsersToClean(ctx, after, cleaningsPerPass)
	if err != nil {
		return atEnd, c.tell(ctx, "cannot list erased users", err)
	}
	if len(users) > 0 {
		err = c.cleanUsers(ctx, users)
	}
	if len(users) < cleaningsPerPass {
		return atEnd, err
	}
	return users[len(users)-1].RowID, err
}

// tell logs an error, unless ctx has ended, and returns it.
func (c *Cleaner) tell(ctx context.Context, message string, err error, about ...any) error {
	if ctx.Err() == nil {
		c.o.Logger.Error(message, append(about, "error", err)...)
	}
	return err
}
