package alert

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/webhook"
)

// A condition ends when it was absent for settleTime. So a condition that comes and goes is one condition.
const settleTime = time.Minute

// ExpiresSoon is the time before the end of a certificate in which the operator is warned.
const ExpiresSoon = 14 * 24 * time.Hour

// condition is a state of the server. The operator is told when it begins and when it ends.
type condition struct {
	kind         Kind
	begun, ended string // titles of the messages
	mend         string // what to do while it lasts
	// check reports whether the condition is present, and says more about it. Of an absent one, nothing is kept.
	check func(ctx context.Context) (detail string, present bool)

	active      bool
	since       time.Time // when it began
	absentSince time.Time // zero: it is present
	detail      string
}

func (c *condition) observe(ctx context.Context, now time.Time, settle time.Duration) {
	detail, present := c.check(ctx)
	switch {
	case present && !c.active:
		c.active, c.since = true, now
		fallthrough
	case present:
		c.absentSince, c.detail = time.Time{}, detail
	case !c.active:
	case c.absentSince.IsZero():
		c.absentSince = now
	case now.Sub(c.absentSince) >= settle:
		c.active, c.absentSince = false, time.Time{}
	}
}

// begins reports whether the condition is present, or has come and gone for settleTime. Until it is over, it may be active and absent.
func (c *condition) begins() bool {
	return c.active && (c.absentSince.IsZero() || c.absentSince.Sub(c.since) >= settleTime)
}

// clockJump is a jump to tell. A machine that is off every night makes smaller ones until its clock is trusted; see clock.State.
const clockJump = 7 * 24 * time.Hour

// conditions returns the conditions, the causes before their consequences.
func (o *Options) conditions() []*condition {
	doctor := "`" + o.Command(webhook.Mend{Action: webhook.ActionRunDoctor}) + "`"
	clock := &condition{
		kind: ClockJumped, begun: "the clock of the server has jumped by a week or more", ended: "the clock of the server is trusted again",
		mend: "If the clock is wrong, set it right before Keyhook trusts it, and deletes what is too old by it.",
	}
	clock.check = func(context.Context) (string, bool) { // once told, it is present until the clock is trusted, also after a restart
		s := o.Store.Clock()
		return strings.TrimSuffix(s.Warning(), "."), !s.Trusted() && (clock.active || s.Jump().Abs() >= clockJump)
	}
	list := []*condition{
		{kind: WritesRefused, begun: "the database refuses writes", ended: "the database takes writes again",
			mend: "Run " + doctor + " on the machine of the server. Until then, Keyhook accepts no events and sends no deliveries.",
			check: func(ctx context.Context) (string, bool) {
				_, err := o.Store.Ready(ctx)
				return fmt.Sprint(err), err != nil
			}},
		{kind: DiskLow, begun: "the disk is nearly full", ended: "the disk has enough free space again",
			mend: "Free some space on the disk of storage.path, or shorten storage.retention_events. Writes fail when the disk is full.",
			check: func(context.Context) (string, bool) {
				free, known := o.Store.Free()
				return fmt.Sprintf("%d MiB are free", free>>20), known && free < disk.LowSpace
			}},
		{kind: DeliveriesLate, begun: "deliveries are late", ended: "deliveries are no longer late",
			mend: "Run " + doctor + " on the machine of the server, and look at the log of the server for errors.",
			check: func(ctx context.Context) (string, bool) {
				_, err := o.Deliveries.Ready(ctx)
				return fmt.Sprintf("%v. Deliveries that wait: %d", err, o.Store.Pending()), err != nil
			}},
		{kind: ResultsUnsaved, begun: "results of attempts cannot be saved", ended: "all results of attempts are saved again",
			mend: "Look at the log of the server for \"result of an attempt\", and run " + doctor + ". Keyhook tries again. If the server stops first, it sends these deliveries again.",
			check: func(context.Context) (string, bool) {
				n := o.Deliveries.Unsaved()
				return fmt.Sprintf("attempts whose result cannot be saved: %d", n), n > 0
			}},
		clock,
	}
	if c := o.Certificate; c != nil && len(c.Certificates) > 0 && c.Certificates[0].Leaf != nil {
		leaf := c.Certificates[0].Leaf
		list = append(list, &condition{
			kind: CertificateExpires, begun: "the TLS certificate expires soon", ended: "the TLS certificate was renewed",
			mend: "Renew the certificate in server.tls_cert_file, and restart Keyhook. Keyhook reads the file only at the start.",
			check: func(context.Context) (string, bool) {
				return "the certificate expires at " + utc(leaf.NotAfter), time.Until(leaf.NotAfter) < ExpiresSoon
			}})
	}
	return list
}
