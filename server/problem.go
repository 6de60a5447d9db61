package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/webhooks"
	"github.com/keyhook/keyhook/storage/fault"
)

var statuses = [...]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Malformed:       http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Conflict:        http.StatusConflict,
	fault.Gone:            http.StatusGone,
	fault.Invalid:         http.StatusUnprocessableEntity,
	fault.TooLarge:        http.StatusRequestEntityTooLarge,
	fault.Limited:         http.StatusTooManyRequests,
	fault.Unavailable:     http.StatusServiceUnavailable,
}

// problem is the body of every response that is not a success (RFC 9457). Its type is "about:blank", so its title is the phrase
// of the status. Clients branch on code.
type problem struct {
	Type          string         `json:"type"`
	Title         string         `json:"title"`
	Status        int            `json:"status"`
	Detail        string         `json:"detail"`
	Code          string         `json:"code"`
	RequestID     string         `json:"request_id"`
	ConflictingID string         `json:"conflicting_id,omitempty"` // of what exists already: its id, name or key
	Errors        []fieldProblem `json:"errors,omitempty"`
}

type fieldProblem struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// specificCodes are codes of fields that say more than "invalid". If the only problem has such a code, the response has the same
// code, so that clients need not read errors.
var specificCodes = map[string]bool{
	"scope_not_grantable": true, form.CodeUnknownPermission: true, "idempotency_key_reused": true,
	webhooks.CodeBeyondRetention: true, form.CodeReservedType: true, egress.CodeHTTPSRequired: true, egress.CodeAddressNotAllowed: true,
}

// retryAfter is the Retry-After of a 503, in seconds: a full disk or a restart takes that long.
const retryAfter = "30"

// retryAfterCode is the Retry-After of codes with another one. Busy readers and the bodies of other requests are soon done. An operator may
// change a plan before the next day, when its bytes are free again.
var retryAfterCode = map[string]string{exchange.CodeNoMemory: "2", "too_busy": "5", "storage_quota_exceeded": "3600"}

// fail responds with the public part of err and keeps the rest for the log.
func (s *Server) fail(c *call, err error) {
	if c.dialect == "" { // in forward authentication, the proxy does not send the body of the proxied request
		c.DiscardBody()
	}
	p, cause := describeProblem(err)
	p.Status = c.masked(p.Status, p.Code)
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), c.ID
	c.Code = p.Code
	c.Cause = cmp.Or(cause, c.Cause)
	if p.Status == http.StatusUnauthorized {
		c.Header()["WWW-Authenticate"] = []string{`ApiKey realm="keyhook"`, `Bearer realm="keyhook"`}
	}
	wait := retryAfterCode[p.Code]
	if p.Status == http.StatusServiceUnavailable {
		wait = cmp.Or(wait, retryAfter)
	}
	if wait != "" && c.Header()["Retry-After"] == nil {
		c.SetHeader("Retry-After", wait)
	}
	if err := c.RespondAs(p.Status, "application/problem+json", p); err != nil {
		s.options.Logger.LogAttrs(context.WithoutCancel(c.Request.Context()), slog.LevelError, "encode problem",
			slog.String("request_id", c.ID), slog.Any("cause", err))
	}
}

// describeProblem returns what the caller sees of err, and the cause for the log only; nil if the caller sees all of it.
func describeProblem(err error) (p problem, cause error) {
	if r, ok := errors.AsType[*exchange.Refusal](err); ok {
		return problem{Status: r.Status, Code: r.Code, Detail: r.Detail}, nil
	}
	if e, ok := fault.As(err); ok && e.Kind != fault.Internal {
		p = problem{Status: statuses[e.Kind], Code: e.Code, Detail: explain.WithMend(e.Code, e.Message), ConflictingID: e.Existing}
		for i, f := range e.Fields {
			if i == form.MaxProblems {
				p.Errors = append(p.Errors, fieldProblem{"", "too_many_problems",
					fmt.Sprintf("There are more problems; only the first %d are listed.", form.MaxProblems)})
				break
			}
			p.Errors = append(p.Errors, fieldProblem{f.Field, f.Code, explain.WithMend(f.Code, f.Message)})
		}
		if len(p.Errors) == 1 && specificCodes[p.Errors[0].Code] {
			p.Code, p.Detail = p.Errors[0].Code, p.Errors[0].Message
		}
		return p, e.Unwrap()
	}
	if errors.Is(err, errStopped) {
		return problem{Status: http.StatusServiceUnavailable, Code: "shutting_down", Detail: "The server is shutting down; try again later."}, err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return problem{Status: http.StatusServiceUnavailable, Code: "timeout", Detail: "The request took too long; try again later."}, err
	}
	return problem{
		Status: http.StatusInternalServerError, Code: "internal_error",
		Detail: "The server failed; the request is not the cause. Give request_id to the operator, who finds the cause in the log.",
	}, err
}
