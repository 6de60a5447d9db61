package server

import (
	"errors"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// authenticator reads the credential of a request and has it checked.
type authenticator struct {
	checker *check.Checker
	reader  *credential.Reader
	cookies *credential.Cookies
}

// read reads the credential of a request and does not ask the store. A failure to read it is for the checks to report.
func (a *authenticator) read(x *exchange) {
	x.Presented, x.Address = a.reader.Read(x.request, x.local), x.client
	if x.Kind != credential.Session {
		return
	}
	x.noStore() // the response is for this browser only
	if errors.Is(x.Unreadable, credential.ErrSession) {
		a.cookies.Clear(x, x.request)
	}
}

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try
// again.
func (a *authenticator) admit(x *exchange) error {
	err := a.checker.Check(x.request.Context(), &x.Run)
	if x.Windowed {
		x.setRateHeaders(x.Window, time.Now())
	}
	switch fault.KindOf(err) {
	case fault.Limited:
		x.set("Retry-After", strconv.FormatInt(max(1, seconds(x.RetryAfter)), 10))
	case fault.Unauthenticated:
		if x.Kind == credential.Session && x.At == access.CheckLookUp {
			a.cookies.Clear(x, x.request)
		}
	}
	return err
}
