package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyhook/keyhook/storage/fault"
)

// How often the issuer is asked for its keys. A key that it gives up counts for refreshInterval more, or for as long as
// the issuer does not answer; a key that it adds counts at once, unless it was asked within tryInterval. Until the first
// answer the interval is firstInterval: often both are being started.
const (
	refreshInterval = 5 * time.Minute
	tryInterval     = 30 * time.Second
	firstInterval   = 5 * time.Second
)

// keySet is what is known of the issuer's keys. Run alone asks the issuer; all who want a key that is not known wait for
// the same answer, and those whose key is known wait for nothing.
type keySet struct {
	wanted chan struct{} // holds a token while Run is to ask

	mu     sync.Mutex
	known  []jose.JSONWebKey // never changed, only replaced
	err    error             // of the last try
	tried  time.Time         // when the last try began
	flight chan struct{}     // closed at the end of the try that is under way or wanted; nil where there is none
	ended  bool              // Run has: nobody will ask any more
}

// find returns the issuer's keys with that id, or all where the id is empty, which fit the algorithm. Faults:
// Unauthenticated where there is none; Unavailable where the issuer was asked in vain.
func (s *keySet) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	keys, flight, err := s.look(id, algorithm, true)
	if flight == nil {
		return keys, err
	}
	select {
	case <-flight:
	case <-ctx.Done():
		return nil, unavailable(context.Cause(ctx))
	}
	keys, _, err = s.look(id, algorithm, false)
	return keys, err
}

// look returns the keys as they are known. Where there is none and the issuer may be asked, flight ends with its answer.
func (s *keySet) look(id, algorithm string, ask bool) (keys []jose.JSONWebKey, flight chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.known {
		if (id == "" || key.KeyID == id) && fits(key, algorithm) {
			keys = append(keys, key)
		}
	}
	switch {
	case len(keys) > 0:
		return keys, nil, nil
	case ask && s.mayAsk():
		if s.flight == nil {
			s.flight = make(chan struct{})
			s.wanted <- struct{}{} // there is room: a token in it would have a flight
		}
		return nil, s.flight, nil
	case s.err != nil:
		return nil, nil, unavailable(s.err)
	}
	return nil, nil, invalid(fmt.Errorf("the issuer has no key %.100q for %s", id, algorithm))
}

func (s *keySet) mayAsk() bool {
	return !s.ended && (s.flight != nil || s.tried.IsZero() || time.Since(s.tried) >= s.interval())
}

// interval is how long after a try another may follow.
func (s *keySet) interval() time.Duration {
	if s.known == nil {
		return firstInterval
	}
	return tryInterval
}

// begin notes that the issuer is being asked.
func (s *keySet) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	if s.flight == nil {
		s.flight = make(chan struct{})
	}
}

// end notes the answer. What was known before stays where there is none; nil keys are no answer. news reports whether the
// issuer answers now and did not before, or the other way round, and again how long to wait before the next try.
func (s *keySet) end(keys []jose.JSONWebKey, err error) (news bool, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = (err == nil) != (s.err == nil) || s.known == nil && err == nil
	s.err = err
	if keys != nil {
		s.known = keys
	}
	s.land()
	if err == nil {
		return news, refreshInterval
	}
	return news, s.interval()
}

// land lets go those who wait.
func (s *keySet) land() {
	select {
	case <-s.wanted: // asked for while a try was about to begin by itself
	default:
	}
	if s.flight != nil {
		close(s.flight)
		s.flight = nil
	}
}

// stop lets go those who wait for an answer that will not come.
func (s *keySet) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.err == nil && s.known == nil {
		s.err = errors.New("the server is stopping")
	}
	s.land()
}

func unavailable(why error) error {
	return fault.New(fault.Unavailable, "issuer_unavailable",
		"This token cannot be verified at the moment, because the identity provider does not answer; try again later.").Because(why)
}

// Run keeps up with the issuer's keys until ctx ends: from the start on, every few minutes, and when a token names a key
// that is not known. That the issuer does not answer is logged and ends nothing.
func (v *Verifier) Run(ctx context.Context) error {
	defer v.keys.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-v.keys.wanted:
		}
		timer.Reset(v.refresh(ctx))
	}
}

// refresh asks the issuer and returns when to ask again.
func (v *Verifier) refresh(ctx context.Context) time.Duration {
	v.keys.begin()
	keys, err := v.source.fetch(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	news, again := v.keys.end(keys, err)
	switch {
	case err == nil && news:
		v.log.LogAttrs(ctx, slog.LevelInfo, "the issuer's keys are known", slog.String("issuer", v.issuer), slog.Int("keys", len(keys)))
	case err != nil && news && ctx.Err() == nil:
		v.log.LogAttrs(ctx, slog.LevelWarn, "cannot get the keys of oidc.issuer, so tokens whose key is not known yet are answered with 503; "+
			"this is tried again every few seconds without further lines", slog.String("issuer", v.issuer), slog.Any("cause", err))
	}
	return again
}
