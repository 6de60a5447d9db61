package oidc

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// SignInLife is how long a sign-in may take, from Begin to Finish.
const SignInLife = 10 * time.Minute

// maxExchanges is how many codes are exchanged at the same time. More sign-ins wait.
const maxExchanges = 16

// SignInOptions configure a SignIn. ClientID and RedirectURL are required.
type SignInOptions struct {
	ClientID    string
	Secret      redact.Text // zero for a client without a secret
	RedirectURL string      // to which the issuer sends the browser back
}

// SignIn signs in people by the authorization code flow (OpenID Connect Core 1.0 section 3.1), with PKCE (RFC 7636), a state
// and a nonce. What it has to remember about a sign-in is sealed, and the browser keeps it. So a sign-in takes memory only when it
// has succeeded. Use NewSignIn.
type SignIn struct {
	verifier *Verifier
	options  SignInOptions
	sealer   cipher.AEAD // with a key of this process
	running  chan struct{}

	// The states of sign-ins that have succeeded, and when each expires. Any other state is worth nothing without a code of the issuer.
	mu    sync.Mutex
	used  map[string]time.Time
	swept time.Time
}

// NewSignIn returns a sign-in with the issuer of v, whose Run must run.
func NewSignIn(v *Verifier, o SignInOptions) *SignIn {
	var key [32]byte
	rand.Read(key[:])
	block, _ := aes.NewCipher(key[:])                // the key has a valid length
	sealer, _ := cipher.NewGCMWithRandomNonce(block) // AES has the block size of GCM
	return &SignIn{verifier: v, options: o, sealer: sealer, running: make(chan struct{}, maxExchanges), used: map[string]time.Time{}}
}

type pending struct {
	State    string
	Nonce    string
	Verifier string // of PKCE
	To       string
	Expires  time.Time
}

// Begin begins a sign-in. It returns the URL at the issuer to which the browser must go, and a sealed text that the browser must
// keep for Finish. to is returned by Finish. Faults: Unavailable with the code issuer_unavailable.
func (s *SignIn) Begin(to string) (redirect, sealed string, err error) {
	found, err := s.endpoints()
	if err != nil {
		return "", "", err
	}
	p := pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to, Expires: time.Now().Add(SignInLife)}
	text, err := json.Marshal(p)
	if err != nil {
		return "", "", err
	}
	redirect = s.config(found).AuthCodeURL(p.State, oauth2.S256ChallengeOption(p.Verifier), oauth2.SetAuthURLParam("nonce", p.Nonce))
	return redirect, base64.RawURLEncoding.EncodeToString(s.sealer.Seal(nil, nil, text, nil)), nil //nolint:gosec // the sealer makes the nonce
}

// Finish finishes a sign-in. sealed is what the browser has kept. answer is the query with which the issuer has sent the browser back. It
// returns the person who has signed in, and to from Begin. Faults: Unauthenticated with the code sign_in_expired (this browser has not
// begun the sign-in, or it has ended), sign_in_denied (the person or the issuer said no), clocks_differ, or sign_in_failed; Unavailable
// with the code issuer_unavailable. Each fault has the reason as its private cause, which never has a whole response of the issuer.
func (s *SignIn) Finish(ctx context.Context, sealed string, answer url.Values) (who access.Identity, to string, err error) {
	p, err := s.open(sealed, answer.Get("state"))
	if err != nil {
		return who, "", err
	}
	refused, issuer := answer.Get("error"), answer.Get("iss")
	switch {
	case issuer != "" && issuer != s.verifier.options.Issuer: // RFC 9207
		return who, "", errFailed.Because(fmt.Errorf("the response is from the issuer %.100q", issuer))
	case refused == "access_denied":
		return who, "", errDenied
	case refused != "":
		return who, "", errFailed.Because(fmt.Errorf("the authorization endpoint answered with the error %s", errorCode(refused)))
	case answer.Get("code") == "":
		return who, "", errFailed.Because(errors.New("the response has no code"))
	}
	token, err := s.exchange(ctx, p, answer.Get("code"))
	if err != nil {
		return who, "", err
	}
	if who, err = s.verifier.verifyIDToken(ctx, token, s.options.ClientID, p.Nonce); err != nil {
		return access.Identity{}, "", explain(err)
	}
	if !s.use(p.State, p.Expires) {
		return access.Identity{}, "", errExpired.Because(errors.New("the sign-in was finished before"))
	}
	return who, p.To, nil
}

// open returns the sign-in that the browser has begun, if the state is the same and it has not ended.
func (s *SignIn) open(sealed, state string) (p pending, err error) {
	if sealed == "" {
		return p, errExpired.Because(errors.New("the request has no cookie of a sign-in"))
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return p, errExpired.Because(errors.New("the cookie of the sign-in is malformed"))
	}
	text, err := s.sealer.Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, errExpired.Because(errors.New("the cookie of the sign-in is not from this process"))
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(p.State), []byte(state)) != 1:
		return p, errExpired.Because(errors.New("the state is not that of the cookie"))
	case !time.Now().Before(p.Expires):
		return p, errExpired.Because(errors.New("the sign-in took longer than " + SignInLife.String()))
	}
	return p, nil
}

func (s *SignIn) exchange(ctx context.Context, p pending, code string) (access.Credential, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("no response within %s", fetchTime))
	defer cancel()
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return access.Credential{}, errAway.Because(context.Cause(ctx))
	}
	found, err := s.endpoints()
	if err != nil {
		return access.Credential{}, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.verifier.source.client)
	token, err := s.config(found).Exchange(ctx, code, oauth2.VerifierOption(p.Verifier))
	refused, isRefused := errors.AsType[*oauth2.RetrieveError](err) // its text has the body of the response
	switch {
	case isRefused && refused.Response != nil && refused.Response.StatusCode >= 500:
		return access.Credential{}, errAway.Because(fmt.Errorf("the token endpoint answered with status %d", refused.Response.StatusCode))
	case isRefused:
		return access.Credential{}, errFailed.Because(fmt.Errorf("the token endpoint refused the code with the error %s; check console.oidc_client_id and console.oidc_client_secret", errorCode(refused.ErrorCode)))
	case err != nil && ctx.Err() != nil:
		return access.Credential{}, errAway.Because(context.Cause(ctx))
	case err != nil:
		return access.Credential{}, errAway.Because(fmt.Errorf("the token endpoint gave no token: %q", shorten(err).Error()))
	}
	raw, _ := token.Extra("id_token").(string)
	c, ok := access.Foreign(raw)
	if raw == "" || !ok {
		return access.Credential{}, errFailed.Because(errors.New("the response of the token endpoint has no ID token, or it is longer than 8 KiB"))
	}
	return c, nil
}

func (s *SignIn) config(found *endpoints) *oauth2.Config {
	style := oauth2.AuthStyleInHeader
	if found.secretInBody || s.options.Secret.IsZero() {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: s.options.ClientID, ClientSecret: s.options.Secret.Reveal(), RedirectURL: s.options.RedirectURL,
		Endpoint: oauth2.Endpoint{AuthURL: found.authorization, TokenURL: found.token, AuthStyle: style},
		Scopes:   []string{"openid", "email"},
	}
}

func (s *SignIn) endpoints() (*endpoints, error) {
	found := s.verifier.source.signIn.Load()
	switch {
	case found == nil:
		return nil, errAway.Because(errors.New("the issuer has not sent its discovery document yet"))
	case found.problem != nil:
		return nil, errAway.Because(found.problem)
	}
	return found, nil
}

// use returns true once for each state.
func (s *SignIn) use(state string, expires time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.swept) > time.Minute {
		s.swept = now
		maps.DeleteFunc(s.used, func(_ string, at time.Time) bool { return !now.Before(at) })
	}
	if _, found := s.used[state]; found {
		return false
	}
	s.used[state] = expires
	return true
}

func explain(err error) error {
	f, ok := fault.As(err)
	switch {
	case !ok || f.Kind != fault.Unauthenticated:
		return err
	case f.Code == "token_expired" || f.Code == "token_not_yet_valid":
		return unauthenticated("clocks_differ", "The clocks of Keyhook and the identity provider differ by more than a minute.", f.Unwrap())
	}
	return errFailed.Because(fmt.Errorf("%s: %w", f.Code, f.Unwrap()))
}

// errorCode returns an error code of the issuer for the log. The codes of OAuth are words; any other text may come from an attacker.
func errorCode(text string) string {
	if text == "" || len(text) > 60 || strings.ContainsFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		return "(not a code of OAuth)"
	}
	return text
}
