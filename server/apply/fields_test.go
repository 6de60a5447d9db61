package apply_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/webhook"
)

// fieldsOfSubscription are those that a document may change.
const fieldsOfSubscription = "event_types audit_events description rate_limit_per_second ordered filter headers"

// TestFieldsOfSubscriptions finds a field of webhook.SubscriptionChange that apply forgets. TestEveryField shows that it changes the others.
func TestFieldsOfSubscriptions(t *testing.T) {
	t.Parallel()
	// Each document needs the URL and the external id. Only a creation takes a secret, and only people pause.
	want := strings.Fields("secret url external_id is_active " + fieldsOfSubscription)
	var have []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[webhook.SubscriptionChange]()) {
		have = append(have, strings.ToLower(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(field.Name, "${1}_$2")))
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("fields of the documents (-) and of the store (+):\n%s", diff)
	}
}

// TestEveryField gives each field of each kind a value, another one, and its usual one. After each document, the same one again finds
// nothing to do, so the server has the values.
func TestEveryField(t *testing.T) {
	t.Parallel()
	const before = `"plans":[{"name":"startup","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":600}],"permissions":[{"key":"c:d"},{"key":"c:e"}],
		"organizations":[{"external_id":"c7","name":"C","plan":"startup"}],"users":[{"external_id":"ada","name":"Ada","email":"ada@example.com"}]`
	for section, tt := range map[string]struct {
		required      string // of each document
		first, second string
		fields        string // that the second one changes
		usual         string // fields that the required ones alone change
	}{
		"plans": {`"name":"p"`, `"api_rate_limit_per_minute":1,"api_keys":false,"webhooks":false,"max_subscriptions":1,"max_api_keys":1,"max_stored_bytes_per_day":1`,
			`"api_rate_limit_per_minute":null,"api_keys":true,"webhooks":true,"max_subscriptions":2,"max_api_keys":2,"max_stored_bytes_per_day":2`,
			"api_keys webhooks api_rate_limit_per_minute max_subscriptions max_api_keys max_stored_bytes_per_day", ""},
		"permissions":   {`"key":"a:b"`, `"description":"one"`, `"description":"two"`, "description", "description"},
		"roles":         {`"name":"r"`, `"permissions":["c:d"]`, `"permissions":["c:d","c:e"]`, "permissions", ""},
		"event_types":   {`"type":"order.paid"`, `"description":"one","group":"G","example":{"a":1},"schema":{"type":"object"}`, `"description":"two","group":"H","example":{"a":2},"schema":{"type":"object","required":["a"]}`, "description group example schema", ""},
		"organizations": {`"external_id":"o"`, `"name":"one","plan":"startup"`, `"name":"two","plan":"growth"`, "name plan", ""},
		"users":         {`"external_id":"u"`, `"name":"one","email":"one@example.com"`, `"name":"two","email":"two@example.com"`, "name email", ""},
		"members":       {`"organization":"c7","user":"ada"`, `"role":"member"`, `"role":"owner"`, "role", ""},
		"subscriptions": {`"organization":"c7","external_id":"s","url":"https://b.example/"`, `"event_types":["a"],"audit_events":true,"description":"one","rate_limit_per_second":1,"ordered":true,
				"filter":[{"path":"a&b","op":"in","value":["<a&b>","A", 1.0]}],"headers":{"X-A":"1"},` + secret,
			`"event_types":["b","a"],"audit_events":false,"description":"two","rate_limit_per_second":2,"ordered":false,"filter":[{"path":"a","op":"eq","value":2}],"headers":{"X-B":"2"}`,
			fieldsOfSubscription, "event_types description rate_limit_per_second filter headers"},
	} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			f := serve(t)
			if r := f.apply(t, before); r.status != 200 {
				t.Fatal(r.text)
			}
			document := func(rest string) string {
				return `"` + section + `":[{` + strings.TrimSuffix(tt.required+","+rest, ",") + `}]`
			}
			changes := func(rest, action string) (names []string) {
				t.Helper()
				r := f.apply(t, document(rest))
				if r.status != 200 || len(r.Changes) != 1 || r.Changes[0].Action != action {
					t.Fatalf("%s: %s", rest, r.text)
				}
				if again := f.apply(t, document(rest)); again.status != 200 || len(again.Changes) > 0 || again.Unchanged != 1 {
					t.Errorf("the same again: %s", again.text)
				}
				for _, field := range r.Changes[0].Fields {
					names = append(names, field.Name)
				}
				slices.Sort(names)
				return names
			}
			sorted := func(text string) []string { return slices.Sorted(slices.Values(strings.Fields(text))) }
			changes(tt.first, "create")
			if diff := cmp.Diff(sorted(tt.fields), changes(tt.second, "update")); diff != "" {
				t.Errorf("other values (-want +got):\n%s", diff)
			}
			if tt.usual == "" {
				return
			}
			if diff := cmp.Diff(sorted(tt.usual), changes("", "update")); diff != "" {
				t.Errorf("the usual values (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHeadersOfANewHost changes the host of a subscription and keeps the names of its headers. The file has their values.
func TestHeadersOfANewHost(t *testing.T) {
	t.Parallel()
	f := serve(t)
	document := func(host string) string {
		return `"subscriptions":[{"organization":"c7","external_id":"erp","url":"https://` + host + `/","headers":{"Authorization":"Bearer x"},` + secret + `}]`
	}
	f.apply(t, full).want(t, 200, made...)
	f.apply(t, document("one.example")).want(t, 200, "create subscription c7/erp url:<nil>>https://one.example/ headers:<nil>>[authorization]")
	f.apply(t, document("two.example")).want(t, 200, "update subscription c7/erp url:https://one.example/>https://two.example/")
}
