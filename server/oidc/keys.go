package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// How often the issuer is asked for its keys. A key that the issuer removes is accepted for refreshInterval at most, or
// until the issuer responds again. The first token that names a new key makes Run ask again, at most once in
// tryInterval. Before the first response, the interval is firstInterval, because issuer and server often start together. Callers who
// want a key within shareInterval after a response have waited for it.
const (
	refreshInterval = 5 * time.Minute
	tryInterval     = 30 * time.Second
	firstInterval   = 5 * time.Second
	shareInterval   = time.Second
)

// keySet contains the keys of the issuer. Only Run asks the issuer, so callers who want an unknown key at the same time wait for
// the same response. Callers whose key is known never wait.
type keySet struct {
	wanted chan chan struct{} // callers who want an unknown key; Run closes their channel after the response
	ended  chan struct{}      // closed when Run ends

	mu    sync.Mutex
	known []jose.JSONWebKey // replaced, never changed; nil before the first response
	err   error             // of the last request to the issuer
}

// find returns the issuer's keys that have the id and may be used with the algorithm. Without an id, every key may match.
// Faults: Unauthenticated if there is none; Unavailable if the issuer does not respond.
func (s *keySet) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	if keys, _ := s.look(id, algorithm); len(keys) > 0 {
		return keys, nil
	}
	s.wait(ctx)
	keys, err := s.look(id, algorithm)
	switch {
	case len(keys) > 0:
		return keys, nil
	case ctx.Err() != nil:
		return nil, errNoKeys.Because(context.Cause(ctx))
	case err != nil:
		return nil, errNoKeys.Because(err)
	}
	return nil, invalid(fmt.Errorf("the issuer has no key %.100q for %s", id, algorithm))
}

// look returns the matching keys that are known, and the error of the last request to the issuer.
func (s *keySet) look(id, algorithm string) (keys []jose.JSONWebKey, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.known {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			keys = append(keys, key)
		}
	}
	return keys, s.err
}

// wait returns when Run has asked the issuer, or has asked it too recently to ask again.
func (s *keySet) wait(ctx context.Context) {
	done := make(chan struct{})
	select {
	case s.wanted <- done:
		select {
		case <-done:
		case <-ctx.Done():
		}
	case <-s.ended:
	case <-ctx.Done():
	}
}

// update stores the response of the issuer. If keys is nil, there was no response, and the known keys stay. changed reports
// whether the issuer started or stopped responding. again is how long to wait before the next request.
func (s *keySet) update(keys []jose.JSONWebKey, err error) (changed bool, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = (err == nil) != (s.err == nil) || s.known == nil && err == nil
	s.err = err
	if keys != nil {
		s.known = keys
	}
	switch {
	case err == nil:
		return changed, refreshInterval
	case s.known == nil:
		return changed, firstInterval
	}
	return changed, tryInterval
}

// Run keeps the keys of the issuer up to date until ctx ends: at the start, every few minutes, and when a token names an
// unknown key. If the issuer does not respond, Run logs that and tries again.
func (v *Verifier) Run(ctx context.Context) error {
	defer close(v.keys.ended)
	defer v.keys.update(nil, errors.New("the server is stopping"))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var allowed time.Time // when a token may cause the next request
	for {
		var waiting chan struct{}
		pause := shareInterval
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case waiting = <-v.keys.wanted:
			pause = tryInterval
		}
		if waiting == nil || !time.Now().Before(allowed) {
			again := v.refresh(ctx)
			timer.Reset(again)
			allowed = time.Now().Add(min(again, pause))
		}
		if waiting != nil {
			close(waiting)
		}
	}
}

// refresh asks the issuer and returns how long to wait before the next request.
func (v *Verifier) refresh(ctx context.Context) time.Duration {
	keys, err := v.source.fetch(ctx)
	changed, again := v.keys.update(keys, err)
	switch {
	case err == nil && changed:
		v.options.Logger.LogAttrs(ctx, slog.LevelInfo, "received the keys of the issuer",
			slog.String("issuer", v.options.Issuer), slog.Int("keys", len(keys)))
	case err != nil && changed && ctx.Err() == nil:
		v.options.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot get the keys of oidc.issuer, so tokens with an unknown key get 503; "+
			"the server tries again every few seconds and does not log that", slog.String("issuer", v.options.Issuer), slog.Any("cause", err))
	}
	return again
}
