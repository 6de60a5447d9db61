package server_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestKeyExternalIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	const path = "/api/v1/api-keys/"
	create := func(as, id string, header ...string) servertest.Response {
		return f.Do(t, "POST "+path, as, `{"name":"n","scope":"events:read","external_id":"`+id+`"}`, header...)
	}
	made := create(servertest.Bearer(token), "backend").Want(t, 201, "")
	id, raw := made.Field("id"), made.Field("key")

	t.Run("are shown by records, lists, whoami and verification", func(t *testing.T) {
		for what, body := range map[string]string{
			"the record":   f.Do(t, "GET "+path+id+"/", servertest.Bearer(token), "").Text,
			"the list":     f.Do(t, "GET "+path, servertest.Bearer(token), "").Text,
			"whoami":       f.Do(t, "GET /api/v1/whoami/", "ApiKey "+raw, "").Text,
			"verification": f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"`+raw+`"}`).Text,
		} {
			if !strings.Contains(body, `external_id":"backend"`) {
				t.Errorf("%s is %s", what, body)
			}
		}
	})
	t.Run("are unique among the active keys of an organization, and the conflict names the other key", func(t *testing.T) {
		if got := create(servertest.Bearer(token), "backend").Want(t, 409, "already_exists"); got.Field("conflicting_id") != id {
			t.Errorf("%s", got.Text)
		}
		if keys := f.List(t, servertest.Bearer(token), path).Data; len(keys) != 1 {
			t.Errorf("%d keys", len(keys))
		}
		create(servertest.Bearer(stranger), "backend").Want(t, 201, "")
		f.Do(t, "GET "+path+"backend/", servertest.Bearer(stranger), "").Want(t, 200, "")
	})
	t.Run("do not have the form of an id", func(t *testing.T) {
		create(servertest.Bearer(token), id).Want(t, 422, "validation_failed")
	})
	t.Run("move to the new key in a rotation", func(t *testing.T) {
		for _, grace := range []string{`{"grace_seconds":60}`, ""} {
			old := f.Do(t, "GET "+path+"backend/", servertest.Bearer(token), "").Want(t, 200, "").Field("id")
			heir := f.Do(t, "POST "+path+"backend/rotate/", servertest.Bearer(token), grace).Want(t, 201, "")
			if heir.Field("external_id") != "backend" || heir.Field("id") == old {
				t.Errorf("the new key is %s", heir.Text)
			}
			if now := f.Do(t, "GET "+path+"backend/", servertest.Bearer(token), ""); now.Field("id") != heir.Field("id") {
				t.Errorf("the external id names %s", now.Text)
			}
			if before := f.Do(t, "GET "+path+old+"/", servertest.Bearer(token), ""); before.Field("external_id") != "" {
				t.Errorf("the old key is %s", before.Text)
			}
		}
	})
	t.Run("are freed by a revocation", func(t *testing.T) {
		revoked := f.Do(t, "GET "+path+"backend/", servertest.Bearer(token), "").Field("id")
		f.Do(t, "DELETE "+path+"backend/", servertest.Bearer(token), "").Want(t, 204, "")
		f.Do(t, "GET "+path+"backend/", servertest.Bearer(token), "").Want(t, 404, "not_found")
		f.Do(t, "DELETE "+path+revoked+"/", servertest.Bearer(token), "").Want(t, 204, "")
		create(servertest.Bearer(token), "backend").Want(t, 201, "")
		if got := f.Do(t, "GET "+path+revoked+"/", servertest.Bearer(token), ""); got.Field("external_id") != "" {
			t.Errorf("the revoked key is %s", got.Text)
		}
	})
	t.Run("are freed by the expiry", func(t *testing.T) {
		expired := create(servertest.Bearer(token), "short").Want(t, 201, "").Field("id")
		storagetest.Exec(t, f.Store, "UPDATE api_keys SET expires_at = 1 WHERE public_id = ?", expired)
		for _, line := range []string{"GET " + path + expired + "/", "GET " + path + "?status=expired"} {
			if got := f.Do(t, line, servertest.Bearer(token), "").Want(t, 200, ""); !strings.Contains(got.Text, `"external_id":null`) || strings.Contains(got.Text, `"external_id":"`) {
				t.Errorf("%s: %s", line, got.Text)
			}
		}
		heir := create(servertest.Bearer(token), "short").Want(t, 201, "").Field("id")
		list := f.Do(t, "GET "+path+"?status=all", servertest.Bearer(token), "").Text
		if got := f.Do(t, "GET "+path+expired+"/", servertest.Bearer(token), ""); got.Field("status") != "expired" || got.Field("external_id") != "" || strings.Count(list, `"external_id":"short"`) != 1 {
			t.Errorf("the expired key is %s, in the list %s", got.Text, list)
		}
		if got := f.Do(t, "GET "+path+"short/", servertest.Bearer(token), ""); got.Field("id") != heir {
			t.Errorf("the external id names %s", got.Text)
		}
	})
	t.Run("go to one of twenty requests at once", func(t *testing.T) {
		var wg sync.WaitGroup
		results := make([]servertest.Response, 20)
		for i := range results {
			wg.Go(func() { results[i] = create(servertest.Bearer(token), "contested") })
		}
		wg.Wait()
		winner, created := f.Do(t, "GET "+path+"contested/", servertest.Bearer(token), "").Want(t, 200, "").Field("id"), 0
		for _, got := range results {
			switch {
			case got.StatusCode == 201 && got.Field("id") == winner:
				created++
			case got.StatusCode != 409 || got.Field("conflicting_id") != winner:
				t.Errorf("%d %s", got.StatusCode, got.Text)
			}
		}
		if created != 1 {
			t.Errorf("%d were created", created)
		}
	})
}
