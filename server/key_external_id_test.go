package server_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestKeyExternalIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	const path = "/api/v1/api-keys/"
	create := func(as, id string, header ...string) testResponse {
		return f.do(t, call{"POST " + path, as, `{"name":"n","scope":"events:read","external_id":"` + id + `"}`, header})
	}
	made := create(bearer(token), "backend").want(t, 201, "")
	id, raw := made.field("id"), made.field("key")

	t.Run("are shown by records, lists, whoami and verification", func(t *testing.T) {
		for what, body := range map[string]string{
			"the record":   f.do(t, call{"GET " + path + id + "/", bearer(token), "", nil}).body,
			"the list":     f.do(t, call{"GET " + path, bearer(token), "", nil}).body,
			"whoami":       f.do(t, call{"GET /api/v1/whoami/", "ApiKey " + raw, "", nil}).body,
			"verification": f.do(t, call{"POST /api/v1/auth/verify/", operator, `{"key":"` + raw + `"}`, nil}).body,
		} {
			if !strings.Contains(body, `external_id":"backend"`) {
				t.Errorf("%s is %s", what, body)
			}
		}
	})
	t.Run("are unique among the active keys of an organization, and the conflict names the other key", func(t *testing.T) {
		if got := create(bearer(token), "backend").want(t, 409, "already_exists"); got.field("conflicting_id") != id {
			t.Errorf("%s", got.body)
		}
		if keys := f.list(t, bearer(token), path).Data; len(keys) != 1 {
			t.Errorf("%d keys", len(keys))
		}
		create(bearer(stranger), "backend").want(t, 201, "")
		f.do(t, call{"GET " + path + "backend/", bearer(stranger), "", nil}).want(t, 200, "")
	})
	t.Run("replace Idempotency-Key, which is refused", func(t *testing.T) {
		got := create(bearer(token), "second", "Idempotency-Key", "k-1").want(t, 400, "invalid_parameter")
		if !strings.Contains(got.field("detail"), "Send external_id") {
			t.Error(got.body)
		}
		f.do(t, call{"GET " + path + "second/", bearer(token), "", nil}).want(t, 404, "not_found")
	})
	t.Run("do not have the form of an id", func(t *testing.T) {
		create(bearer(token), id).want(t, 422, "validation_failed")
	})
	t.Run("move to the new key in a rotation", func(t *testing.T) {
		for _, grace := range []string{`{"grace_seconds":60}`, ""} {
			old := f.do(t, call{"GET " + path + "backend/", bearer(token), "", nil}).want(t, 200, "").field("id")
			heir := f.do(t, call{"POST " + path + "backend/rotate/", bearer(token), grace, nil}).want(t, 201, "")
			if heir.field("external_id") != "backend" || heir.field("id") == old {
				t.Errorf("the new key is %s", heir.body)
			}
			if now := f.do(t, call{"GET " + path + "backend/", bearer(token), "", nil}); now.field("id") != heir.field("id") {
				t.Errorf("the external id names %s", now.body)
			}
			if before := f.do(t, call{"GET " + path + old + "/", bearer(token), "", nil}); before.field("external_id") != "" {
				t.Errorf("the old key is %s", before.body)
			}
		}
	})
	t.Run("are freed by a revocation", func(t *testing.T) {
		revoked := f.do(t, call{"GET " + path + "backend/", bearer(token), "", nil}).field("id")
		f.do(t, call{"DELETE " + path + "backend/", bearer(token), "", nil}).want(t, 204, "")
		f.do(t, call{"GET " + path + "backend/", bearer(token), "", nil}).want(t, 404, "not_found")
		f.do(t, call{"DELETE " + path + revoked + "/", bearer(token), "", nil}).want(t, 204, "")
		create(bearer(token), "backend").want(t, 201, "")
		if got := f.do(t, call{"GET " + path + revoked + "/", bearer(token), "", nil}); got.field("external_id") != "" {
			t.Errorf("the revoked key is %s", got.body)
		}
	})
	t.Run("go to one of twenty requests at once", func(t *testing.T) {
		var wg sync.WaitGroup
		results := make([]testResponse, 20)
		for i := range results {
			wg.Go(func() { results[i] = create(bearer(token), "contested") })
		}
		wg.Wait()
		winner, created := f.do(t, call{"GET " + path + "contested/", bearer(token), "", nil}).want(t, 200, "").field("id"), 0
		for _, got := range results {
			switch {
			case got.StatusCode == 201 && got.field("id") == winner:
				created++
			case got.StatusCode != 409 || got.field("conflicting_id") != winner:
				t.Errorf("%d %s", got.StatusCode, got.body)
			}
		}
		if created != 1 {
			t.Errorf("%d were created", created)
		}
	})
}
