package webhooks_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSubscriptionExternalIDs(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	const path = "/api/v1/webhooks/subscriptions/"
	create := func(as, id string) servertest.Response {
		return f.Do(t, "POST "+path, as, `{"url":"https://example.com/","event_types":["user.created"],"external_id":"`+id+`"}`)
	}
	made := create(servertest.Bearer(token), "ware/house+1").Want(t, 201, "")
	id, named := made.Field("id"), path+url.PathEscape("ware/house+1")+"/"
	sub, err := f.Store.History.Subscription(t.Context(), owner.Home.RowID, id)
	if err != nil {
		t.Fatal(err)
	}
	f.Attempted(t, owner, sub, 1)
	attempt := f.List(t, servertest.Bearer(token), named+"deliveries/").Data[0]["id"].(string)

	t.Run("are accepted in every path in place of the id", func(t *testing.T) {
		for line, body := range map[string]string{
			"GET " + named: "", "PATCH " + named: `{"description":"x"}`, "POST " + named + "rotate-secret/": "",
			"GET " + named + "deliveries/": "", "GET " + named + "deliveries/" + attempt + "/": "",
			"POST " + named + "deliveries/" + attempt + "/redeliver/": "", "POST " + named + "recover/": `{"dry_run":true}`,
			"POST " + named + "replay/": `{"since":"` + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + `","dry_run":true}`, "POST " + named + "discard/": "",
		} {
			got := f.Do(t, line, servertest.Bearer(token), body)
			if got.StatusCode != 200 && got.StatusCode != 202 {
				t.Errorf("%s: %d %s", line, got.StatusCode, got.Text)
			}
			if strings.HasSuffix(line, named) && (got.Field("id") != id || got.Field("external_id") != "ware/house+1") {
				t.Errorf("%s: %s", line, got.Text)
			}
		}
	})
	t.Run("are unique in an organization, and the conflict names the other subscription", func(t *testing.T) {
		if got := create(servertest.Bearer(token), "ware/house+1").Want(t, 409, "already_exists"); got.Field("conflicting_id") != id {
			t.Errorf("%s", got.Text)
		}
		second := create(servertest.Bearer(token), "second").Want(t, 201, "").Field("id")
		change := f.Do(t, "PATCH "+path+"second/", servertest.Bearer(token), `{"external_id":"ware/house+1"}`).Want(t, 409, "already_exists")
		if change.Field("conflicting_id") != id {
			t.Errorf("%s", change.Text)
		}
		f.Do(t, "PATCH "+path+second+"/", servertest.Bearer(token), `{"external_id":"second"}`).Want(t, 200, "")
		create(servertest.Bearer(stranger), "ware/house+1").Want(t, 201, "")
	})
	t.Run("are not found in another organization", func(t *testing.T) {
		f.Do(t, "GET "+path+"second/", servertest.Bearer(stranger), "").Want(t, 404, "not_found")
	})
	t.Run("do not have the form of an id", func(t *testing.T) {
		for _, wrong := range []string{id, "key_01h455vb4pex5vsknk084sn02q", "..", " x", ""} {
			got := create(servertest.Bearer(token), wrong).Want(t, 422, "validation_failed")
			if fields := got.Fields(); len(fields) != 1 || !strings.HasPrefix(fields[0], "external_id: ") {
				t.Errorf("%q: %v", wrong, fields)
			}
		}
	})
	t.Run("are removed by null, and freed when the subscription is deleted", func(t *testing.T) {
		f.Do(t, "PATCH "+path+"second/", servertest.Bearer(token), `{"external_id":null}`).Want(t, 200, "")
		f.Do(t, "GET "+path+"second/", servertest.Bearer(token), "").Want(t, 404, "not_found")
		f.Do(t, "DELETE "+named, servertest.Bearer(token), "").Want(t, 204, "")
		f.Do(t, "GET "+named, servertest.Bearer(token), "").Want(t, 404, "not_found")
		f.Do(t, "GET "+path+id+"/deliveries/", servertest.Bearer(token), "").Want(t, 200, "") // the log stays
		create(servertest.Bearer(token), "ware/house+1").Want(t, 201, "")
	})
	t.Run("go to one of twenty requests at once", func(t *testing.T) {
		var wg sync.WaitGroup
		results := make([]servertest.Response, 20)
		for i := range results {
			wg.Go(func() { results[i] = create(servertest.Bearer(token), "contested") })
		}
		wg.Wait()
		winner := f.Do(t, "GET "+path+"contested/", servertest.Bearer(token), "").Want(t, 200, "").Field("id")
		created := 0
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
