package check

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
)

// freshFor is how long a passed check holds, unless a principal changes. A credential may expire later.
const freshFor = time.Second

// Recheck makes the checks again after a part of the request that took time, such as its body. Meanwhile the credential may have
// been revoked or may have expired, and its user may have lost the role. The request was counted by Check, so Recheck counts
// nothing. If no principal has changed, it costs the comparison of a number and of the time.
func (k *Checker) Recheck(ctx context.Context, c *Run) error {
	if c.generation == k.store.PrincipalGeneration() && time.Since(c.foundAt) < freshFor {
		return nil
	}
	c.At = access.CheckLookUp
	if err := k.findPrincipal(ctx, c); err != nil {
		return err
	}
	for _, c.At = range [...]access.Check{access.CheckPlan, access.CheckOrganization, access.CheckPermission} {
		if err := checks[c.At](k, ctx, c); err != nil {
			return err
		}
	}
	c.At = access.CheckPassed
	return nil
}
