package server_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSubscriptionExternalIDs(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	create := func(as, id string) testResponse {
		return f.do(t, call{"POST " + path, as, `{"url":"https://example.com/","event_types":["user.created"],"external_id":"` + id + `"}`, nil})
	}
	made := create(bearer(token), "ware/house+1").want(t, 201, "")
	id, named := made.field("id"), path+url.PathEscape("ware/house+1")+"/"
	sub, err := f.store.History.Subscription(t.Context(), owner.Home.RowID, id)
	if err != nil {
		t.Fatal(err)
	}
	attempted(t, f, owner, sub, 1)
	attempt := f.list(t, bearer(token), named+"deliveries/").Data[0]["id"].(string)

	t.Run("are accepted in every path in place of the id", func(t *testing.T) {
		for line, body := range map[string]string{
			"GET " + named: "", "PATCH " + named: `{"description":"x"}`, "POST " + named + "rotate-secret/": "",
			"GET " + named + "deliveries/": "", "GET " + named + "deliveries/" + attempt + "/": "",
			"POST " + named + "deliveries/" + attempt + "/redeliver/": "", "POST " + named + "recover/": `{"dry_run":true}`,
			"POST " + named + "replay/": `{"since":"` + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + `","dry_run":true}`, "POST " + named + "discard/": "",
		} {
			got := f.do(t, call{line, bearer(token), body, nil})
			if got.StatusCode != 200 && got.StatusCode != 202 {
				t.Errorf("%s: %d %s", line, got.StatusCode, got.body)
			}
			if strings.HasSuffix(line, named) && (got.field("id") != id || got.field("external_id") != "ware/house+1") {
				t.Errorf("%s: %s", line, got.body)
			}
		}
	})
	t.Run("are unique in an organization, and the conflict names the other subscription", func(t *testing.T) {
		if got := create(bearer(token), "ware/house+1").want(t, 409, "already_exists"); got.field("conflicting_id") != id {
			t.Errorf("%s", got.body)
		}
		second := create(bearer(token), "second").want(t, 201, "").field("id")
		change := f.do(t, call{"PATCH " + path + "second/", bearer(token), `{"external_id":"ware/house+1"}`, nil}).want(t, 409, "already_exists")
		if change.field("conflicting_id") != id {
			t.Errorf("%s", change.body)
		}
		f.do(t, call{"PATCH " + path + second + "/", bearer(token), `{"external_id":"second"}`, nil}).want(t, 200, "")
		create(bearer(stranger), "ware/house+1").want(t, 201, "")
	})
	t.Run("are not found in another organization", func(t *testing.T) {
		f.do(t, call{"GET " + path + "second/", bearer(stranger), "", nil}).want(t, 404, "not_found")
	})
	t.Run("do not have the form of an id", func(t *testing.T) {
		for _, wrong := range []string{id, "key_01h455vb4pex5vsknk084sn02q", "..", " x", ""} {
			got := create(bearer(token), wrong).want(t, 422, "validation_failed")
			if fields := got.fields(); len(fields) != 1 || !strings.HasPrefix(fields[0], "external_id: ") {
				t.Errorf("%q: %v", wrong, fields)
			}
		}
	})
	t.Run("are removed by null, and freed when the subscription is deleted", func(t *testing.T) {
		f.do(t, call{"PATCH " + path + "second/", bearer(token), `{"external_id":null}`, nil}).want(t, 200, "")
		f.do(t, call{"GET " + path + "second/", bearer(token), "", nil}).want(t, 404, "not_found")
		f.do(t, call{"DELETE " + named, bearer(token), "", nil}).want(t, 204, "")
		f.do(t, call{"GET " + named, bearer(token), "", nil}).want(t, 404, "not_found")
		f.do(t, call{"GET " + path + id + "/deliveries/", bearer(token), "", nil}).want(t, 200, "") // the log stays
		create(bearer(token), "ware/house+1").want(t, 201, "")
	})
	t.Run("go to one of twenty requests at once", func(t *testing.T) {
		var wg sync.WaitGroup
		results := make([]testResponse, 20)
		for i := range results {
			wg.Go(func() { results[i] = create(bearer(token), "contested") })
		}
		wg.Wait()
		winner := f.do(t, call{"GET " + path + "contested/", bearer(token), "", nil}).want(t, 200, "").field("id")
		created := 0
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
