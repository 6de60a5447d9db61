package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// grants is a server with callers that have few permissions besides platform:write, and with users and roles that have more.
type grants struct {
	*testServer
	callers map[string]string // Authorization headers by what the caller is
	fill    *strings.Replacer // of a path or a body
}

func newGrants(t *testing.T) grants {
	f := build(t)
	admin := storagetest.Operator(t, f.Store)
	by := admin.Actor("192.0.2.1", "req")
	for name, permissions := range map[string][]string{
		"viewer": {}, "writer": {access.PlatformWrite}, "traveller": {access.PlatformWrite, access.PlatformActAs}, "auditor": {access.EventsRead, access.AuditRead},
	} {
		if _, err := f.Store.Directory.CreateRole(t.Context(), by, access.Role{Name: name, Permissions: access.NewScope(permissions...)}); err != nil {
			t.Fatal(err)
		}
	}
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	auditor, _ := storagetest.Member(t, f.Store, admin.Home, "auditor", "auditor")
	asleep, _ := storagetest.Member(t, f.Store, admin.Home, "asleep", access.RoleOperator)
	if _, err := f.Store.Directory.UpdateUser(t.Context(), by, asleep.User.ID, access.UserChange{IsActive: new(false)}); err != nil {
		t.Fatal(err)
	}
	writer, writerToken := storagetest.Member(t, f.Store, admin.Home, "writer", "writer")
	_, travellerToken := storagetest.Member(t, f.Store, admin.Home, "traveller", "traveller")
	if _, err := f.Store.Directory.SetMember(t.Context(), by, owner.Home.ID, writer.User.ID, "writer"); err != nil { // so that the role has members elsewhere
		t.Fatal(err)
	}
	link := access.NewPortalLink{Credential: access.Mint(access.LinkPrefix), Role: "viewer", Life: time.Hour}
	if _, err := f.Store.Directory.CreatePortalLink(t.Context(), by, owner.Home.ID, link); err != nil {
		t.Fatal(err)
	}
	_, key := storagetest.Key(t, f.Store, admin, access.PlatformWrite)
	return grants{f,
		map[string]string{
			"a key of the scope platform:write":              servertest.APIKey(key),
			"a user with platform:write":                     servertest.Bearer(writerToken),
			"a user with platform:write and platform:act_as": servertest.Bearer(travellerToken),
		},
		strings.NewReplacer("{admin}", admin.User.ID, "{owner}", owner.User.ID, "{auditor}", auditor.User.ID, "{asleep}", asleep.User.ID,
			"{writer}", writer.User.ID, "{default}", admin.Home.ID, "{acme}", owner.Home.ID),
	}
}

// state returns everything that the calls of these tests could change.
func (g grants) state(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, path := range []string{
		"roles/", "users/", "organizations/{default}/members/", "organizations/{acme}/members/",
		"users/{admin}/access-tokens/", "users/{owner}/access-tokens/", "users/{auditor}/access-tokens/", "audit-events/",
	} {
		text.WriteString(g.Do(t, "GET /api/v1/"+g.fill.Replace(path), servertest.Operator, "").Want(t, http.StatusOK, "").Text)
	}
	return regexp.MustCompile(`"last_used_at":[^,}]*`).ReplaceAllString(text.String(), "") // which the server writes now and then
}

func TestNobodyGrantsWhatTheyDoNotHold(t *testing.T) {
	t.Parallel()
	g := newGrants(t)
	ways := []struct {
		name, line, body string
		missing          string // for a caller with platform:write and platform:act_as
		elsewhere        bool   // it reaches another organization, so without platform:act_as that is missing too
	}{
		{"a token of an operator", "POST users/{admin}/access-tokens/", `{"organization_id":"{default}"}`, access.APIKeysRead, false},
		{"a token of an owner elsewhere", "POST users/{owner}/access-tokens/", `{"organization_id":"{acme}"}`, access.WebhooksWrite, true},
		{"a token of a user with another role", "POST users/{auditor}/access-tokens/", `{"organization_id":"{default}"}`, access.AuditRead, false},
		{"the role operator for itself", "PUT organizations/{default}/members/{writer}/", `{"role":"operator"}`, access.PlatformRead, false},
		{"the role owner elsewhere", "PUT organizations/{acme}/members/{admin}/", `{"role":"owner"}`, access.EventsWrite, true},
		{"a custom role", "PUT organizations/{default}/members/{writer}/", `{"role":"auditor"}`, access.EventsRead, false},
		{"a new role", "POST roles/", `{"name":"new","permissions":["events:read","platform:write"]}`, access.EventsRead, false},
		{"more to its own role", "PATCH roles/writer/", `{"permissions":["events:read","platform:write"]}`, access.EventsRead, true},
		{"more to the role of a portal elsewhere", "PATCH roles/viewer/", `{"permissions":["events:read"]}`, access.EventsRead, true},
		{"a part of a role that holds more", "PATCH roles/auditor/", `{"permissions":["events:read"]}`, access.EventsRead, false},
		{"a role that holds more, to take all of it away", "PATCH roles/auditor/", `{"permissions":[]}`, access.EventsRead, false},
		{"an operator's e-mail address", "PATCH users/{admin}/", `{"email":"mine@example.com"}`, access.EventsRead, false},
		{"an operator's external id", "PATCH users/{admin}/", `{"external_id":"my-sub"}`, access.EventsRead, false},
		{"an owner's external id", "PATCH users/{owner}/", `{"external_id":"my-other-sub"}`, access.EventsRead, true},
		{"an inactive operator", "PATCH users/{asleep}/", `{"is_active":true}`, access.EventsRead, false},
	}
	request := func(line, body, as string) servertest.Call {
		method, path, _ := strings.Cut(line, " ")
		return servertest.NewCall(method+" /api/v1/"+g.fill.Replace(path), as, g.fill.Replace(body))
	}
	before := g.state(t)
	for _, way := range ways {
		for caller, as := range g.callers {
			t.Run(caller+" cannot get "+way.name, func(t *testing.T) {
				detail := g.Call(t, request(way.line, way.body, as)).Want(t, http.StatusForbidden, "permission_denied").Field("detail")
				if !strings.Contains(detail, way.missing) {
					t.Errorf("the detail does not name %s: %s", way.missing, detail)
				}
				if travels := strings.Contains(caller, "act_as"); way.elsewhere && strings.Contains(detail, access.PlatformActAs) == travels {
					t.Errorf("the detail is wrong about platform:act_as: %s", detail)
				}
				if after := g.state(t); after != before {
					t.Error("the refusal has left something behind")
				}
			})
		}
	}
	for _, way := range ways {
		t.Run("an operator can get "+way.name, func(t *testing.T) {
			if got := g.Call(t, request(way.line, way.body, servertest.Operator)); got.StatusCode != http.StatusOK && got.StatusCode != http.StatusCreated {
				t.Errorf("status %d: %s", got.StatusCode, got.Text)
			}
		})
	}
}
