package server

import (
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

// The values of Retry-After for 503, in seconds: a full disk or a restart takes longer than busy readers.
const (
	retryAfter     = "30"
	retryAfterBusy = "5"
	codeTooBusy    = "too_busy"
)

// codeStorageQuota is the code of a request that adds more bytes than the plan allows in a day. An operator may change the plan before the
// next day, so its Retry-After is an hour.
const codeStorageQuota, retryAfterQuota = "storage_quota_exceeded", "3600"

// fail responds with the public part of err and keeps the rest for the log.
func (s *Server) fail(c *call, err error) {
	if c.dialect == "" { // in forward authentication, the proxy does not send the body of the proxied request
		c.DiscardBody()
	}
	p := publicProblem(err)
	p.Status = c.masked(p.Status, p.Code)
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), c.ID
	c.Code = p.Code
	if cause := privateCause(err); cause != nil {
		c.Cause = cause
	}
	switch p.Status {
	case http.StatusUnauthorized:
		c.Header()["WWW-Authenticate"] = []string{`ApiKey realm="keyhook"`, `Bearer realm="keyhook"`}
	case http.StatusTooManyRequests:
		if p.Code == codeStorageQuota {
			c.SetHeader("Retry-After", retryAfterQuota)
		}
	case http.StatusServiceUnavailable:
		if c.Header()["Retry-After"] != nil {
			break
		}
		wait := retryAfter
		if p.Code == codeTooBusy {
			wait = retryAfterBusy
		}
		c.SetHeader("Retry-After", wait)
	}
	if err := c.RespondAs(p.Status, "application/problem+json", p); err != nil {
		s.options.Logger.LogAttrs(context.WithoutCancel(c.Request.Context()), slog.LevelError, "encode problem",
			slog.String("request_id", c.ID), slog.Any("cause", err))
	}
}

func publicProblem(err error) problem {
	if r, ok := errors.AsType[*exchange.Refusal](err); ok {
		return problem{Status: r.Status, Code: r.Code, Detail: r.Detail}
	}
	if e, ok := fault.As(err); ok && e.Kind != fault.Internal {
		p := problem{Status: statuses[e.Kind], Code: e.Code, Detail: explain.WithMend(e.Code, e.Message), ConflictingID: e.Existing}
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
		return p
	}
	if errors.Is(err, errStopped) {
		return problem{Status: http.StatusServiceUnavailable, Code: "shutting_down", Detail: "The server is shutting down; try again later."}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return problem{Status: http.StatusServiceUnavailable, Code: "timeout", Detail: "The request took too long; try again later."}
	}
	return problem{
		Status: http.StatusInternalServerError, Code: "internal_error",
		Detail: "The server failed; the request is not the cause. Give request_id to the operator, who finds the cause in the log.",
	}
}

// privateCause returns the part of err that is for the log only. It is nil if the public part is complete.
func privateCause(err error) error {
	if _, ok := errors.AsType[*exchange.Refusal](err); ok {
		return nil
	}
	if e, ok := fault.As(err); ok {
		return e.Unwrap()
	}
	return err
}
