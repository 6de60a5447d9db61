package alert_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestADisabledSubscriptionIsToldOnce(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 1)
		x.disable(t, owner, subs...)
		m := x.one(t, 20*time.Second, "Keyhook: disabled subscriptions: 1", "acme (org_", subs[0].ID, "host acme-0(.)example", "Last error: timeout: no response",
			"Deliveries that wait: 1", "run: do recover "+subs[0].OrganizationID+" "+subs[0].ID, "https://keys.example.com",
			"Disabled since 2000-01-01 00:00:0", "First failure: 2000-01-01 00:00:0", "Last success: never")
		for _, secret := range []string{"secretpath", "secretquery", "whsec_"} {
			if strings.Contains(m.title+m.body, secret) {
				t.Errorf("the message shows %q:\n%s", secret, m.body)
			}
		}
		x.none(t, long)
		x.restart(t)
		x.none(t, long)

		x.reactivate(t, owner, subs...)
		x.one(t, 20*time.Second, "Keyhook: recovered subscriptions: 1", subs[0].ID, "Status: healthy")
		x.none(t, long)
		x.restart(t)
		x.none(t, long)
	})
}

func TestSubscriptionsThatDieTogetherAreOneMessage(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		large, subs := x.subscribe(t, "large", 200)
		small, one := x.subscribe(t, "small", 1)
		x.disable(t, large, subs...)
		x.disable(t, small, one...)
		m := x.one(t, 20*time.Second, "Keyhook: disabled subscriptions: 201", "small (org_", one[0].ID, subs[0].ID)
		named := strings.Count(m.body, "do recover org_")
		if more := fmt.Sprintf("And %d more. List all with `do list_disabled", 201-named); named < 8 || named > 10 || !strings.Contains(m.body, more) {
			t.Errorf("%d subscriptions are named, or not %q:\n%s", named, more, m.body)
		}
		if len(m.body) > 4000 {
			t.Errorf("the body has %d bytes", len(m.body))
		}
		x.none(t, long)
		x.restart(t)
		x.none(t, long)
	})
}

func TestWhatHappensWithinTheIntervalIsOneMessage(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 5)
		x.disable(t, owner, subs[0])
		first := x.one(t, 20*time.Second, subs[0].ID)
		for _, sub := range subs[1:] {
			x.disable(t, owner, sub)
			x.none(t, 2*time.Minute)
		}
		second := x.one(t, 8*time.Minute, "Disabled subscriptions: 4", subs[1].ID, subs[4].ID)
		if after := second.at.Sub(first.at); after < interval || after > interval+20*time.Second {
			t.Errorf("the second message came after %s", after)
		}
		if strings.Contains(second.body, subs[0].ID) {
			t.Errorf("the second message repeats the first:\n%s", second.body)
		}
	})
}

func TestASubscriptionThatCameBackBeforeAnybodyWasToldIsNotTold(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 2)
		x.disable(t, owner, subs[0])
		x.one(t, 20*time.Second, subs[0].ID)
		x.disable(t, owner, subs[1])
		x.none(t, time.Minute)
		x.reactivate(t, owner, subs[1])
		x.none(t, long)
		storagetest.Exec(t, x.store, "UPDATE subscriptions SET last_success_at = 946684800000 WHERE id = ?", subs[1].RowID)
		x.disable(t, owner, subs[1])
		x.none(t, 6*time.Second)
		other, others := x.subscribe(t, "other", 1)
		x.disable(t, other, others...)
		x.one(t, 20*time.Second, "Disabled subscriptions: 2", subs[1].ID, "Last success: 2000-01-01 00:00:00 UTC", others[0].ID)
	})
}

func TestAFlappingSubscriptionIsOneMessageInEachInterval(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "flapping", 10)
		byTitle := map[string]int{}
		for range 60 { // minutes
			x.disable(t, owner, subs...)
			for _, m := range x.take(30 * time.Second) {
				byTitle[strings.Fields(m.title)[1]]++
			}
			x.reactivate(t, owner, subs...)
			for _, m := range x.take(30 * time.Second) {
				byTitle[strings.Fields(m.title)[1]]++
			}
		}
		for title, n := range byTitle {
			if n > 5 { // an hour is 4 intervals
				t.Errorf("%d messages that begin with %q", n, title)
			}
		}
		if byTitle["disabled"] < 2 {
			t.Errorf("messages: %v", byTitle)
		}
	})
}

func TestARestartForgetsNothing(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 3)
		x.disable(t, owner, subs[0])
		first := x.one(t, 20*time.Second, subs[0].ID)
		x.disable(t, owner, subs[1]) // within the interval
		x.restart(t)
		second := x.one(t, 20*time.Minute, "Disabled subscriptions: 1", subs[1].ID)
		if after := second.at.Sub(first.at); after < interval {
			t.Errorf("the restart shortened the interval to %s", after)
		}
		x.stop()
		x.reactivate(t, owner, subs[0]) // while nobody looks
		x.disable(t, owner, subs[2])
		x.end()
		x.start(t)
		sent := x.take(long)
		if len(sent) != 2 || !strings.Contains(sent[0].body+sent[1].body, subs[0].ID) || !strings.Contains(sent[0].body+sent[1].body, subs[2].ID) {
			t.Errorf("after the restart: %+v", sent)
		}
	})
}

func TestWhatNoChannelCouldSendIsToldInTheNextInterval(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 2)
		x.breaks("ntfy 1", func() error { return errBroken })
		x.disable(t, owner, subs[0])
		x.none(t, 10*time.Minute)
		x.disable(t, owner, subs[1])
		x.breaks("ntfy 1", nil)
		x.one(t, 10*time.Minute, "Disabled subscriptions: 2", subs[0].ID, subs[1].ID)
		if x.ends["subscription_disabled false"] != 1 || x.ends["subscription_disabled true"] != 1 {
			t.Errorf("ends: %v", x.ends)
		}
		if failed, sent := x.log.count("an alert cannot be sent"), x.log.count("alert sent"); failed != 1 || sent != 1 {
			t.Errorf("%d and %d log lines", failed, sent)
		}
		if x.log.count("canary") > 0 {
			t.Errorf("the log shows the URL:\n%s", x.log.text.String())
		}
	})
}

func TestADeadChannelDelaysNoOther(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T) func() error{
		"that fails": func(*testing.T) func() error { return func() error { return errBroken } },
		"that is slow and fails": func(*testing.T) func() error {
			return func() error { time.Sleep(time.Second); return errBroken }
		},
		"that hangs": func(*testing.T) func() error { return func() error { return alert.ErrHangs } },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, twoChannels, func(t *testing.T, x *fixture) {
				x.breaks("gotify 2", fail(t))
				owner, subs := x.subscribe(t, "acme", 12)
				for i, sub := range subs {
					x.disable(t, owner, sub)
					m := x.one(t, interval+time.Minute, sub.ID)
					if i == 0 && time.Since(m.at) < interval {
						t.Errorf("the first message came at %s", m.at)
					}
				}
				x.take(alert.RetryFor + 2*time.Minute)
				if x.ends["subscription_disabled true"] != 12 || x.ends["subscription_disabled false"] != 12 {
					t.Errorf("ends: %v", x.ends)
				}
				if n := x.log.count("an alert cannot be sent"); n != 12 {
					t.Errorf("%d log lines", n)
				}
				x.restart(t) // must not wait for the dead channel
				x.none(t, long)
			})
		})
	}
}

// TestADeadChannelDelaysNoMessageOfAShortInterval has a dead channel that takes longer for a message than the interval.
func TestADeadChannelDelaysNoMessageOfAShortInterval(t *testing.T) {
	inVirtualTime(t, twoChannels, func(t *testing.T, x *fixture) {
		x.options.Interval = time.Minute
		x.restart(t)
		x.breaks("gotify 2", func() error { return errBroken })
		owner, subs := x.subscribe(t, "acme", 40)
		for _, sub := range subs {
			x.disable(t, owner, sub)
			x.one(t, 75*time.Second, sub.ID)
		}
		x.take(20 * alert.RetryFor)
		if x.ends["subscription_disabled true"] != len(subs) || x.ends["subscription_disabled false"] != len(subs) {
			t.Errorf("ends: %v", x.ends)
		}
		if failed, full := x.log.count("an alert cannot be sent"), x.log.count("too many messages wait"); failed != len(subs) || full == 0 {
			t.Errorf("%d log lines, %d of them because too many messages waited", failed, full)
		}
	})
}

func TestAStopBeginsNoMessage(t *testing.T) {
	inVirtualTime(t, twoChannels, func(t *testing.T, x *fixture) {
		x.options.Interval = 20 * time.Second
		x.restart(t)
		x.breaks("gotify 2", func() error { return alert.ErrHangs })
		owner, subs := x.subscribe(t, "acme", 2)
		for _, sub := range subs { // the second message waits for the dead channel
			x.disable(t, owner, sub)
			x.one(t, 25*time.Second, sub.ID)
		}
		before := time.Now()
		x.restart(t)
		if took := time.Since(before); took > 3*time.Second {
			t.Errorf("the restart took %s", took)
		}
	})
}

func TestADeletedSubscriptionIsNotTold(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 2)
		x.disable(t, owner, subs...)
		x.one(t, 20*time.Second, subs[0].ID)
		if err := x.store.Subscriptions.DeleteSubscription(t.Context(), owner.Actor("127.0.0.1", "test"), owner.Organization.RowID, subs[0].ID); err != nil {
			t.Fatal(err)
		}
		x.none(t, long)
	})
}

func TestWithoutChannelsNothingRuns(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 1)
		x.disable(t, owner, subs...)
		x.none(t, long)
		if untold, err := x.store.Untold(t.Context(), 0, 10); err != nil || len(untold) != 1 {
			t.Errorf("untold %v, error %v: it must be told when somebody sets alerts.urls", untold, err)
		}
	})
}

func TestACustomersTextCanMentionNobody(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Acme GmbH":                     "Acme GmbH",
		"@everyone":                     "(at)everyone",
		"<!channel> hello":              "(!channel) hello",
		"[pay here](https://evil.test)": "(pay here)(https(:)//evil(.)test)",
		"a\nb\r\n.\r\nQUIT\u202e\x00":   "a b . QUIT",
		strings.Repeat("é", 100):        strings.Repeat("é", 59) + "…",
	} {
		if got := alert.Clean(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// linkTexts are names of organizations, and what an alert says in their place.
var linkTexts = map[string]string{
	"Acme Inc.":                     "Acme Inc.",
	"Acme: Smith & Sons, No. 5":     "Acme: Smith & Sons, No. 5",
	"R&D":                           "R(and)D",
	"https://evil.test/login":       "https(:)//evil(.)test/login",
	"HTTP://EVIL":                   "HTTP(:)//EVIL",
	"Pay: http://10.0.0.1/a.b..c.":  "Pay: http(:)//10(.)0(.)0(.)1/a(.)b(.)(.)c.",
	"www.evil.test":                 "www(.)evil(.)test",
	"evil.test":                     "evil(.)test",
	".evil.test. Log in":            "(.)evil(.)test. Log in",
	"evil\u3002test evil\uff0etest": "evil(.)test evil(.)test",
	"evil\uff61test evil\u2024test": "evil(.)test evil(.)test",
	"evil.\u200btest":               "evil. test", // no service joins them
	"mailto:a@evil.test":            "mailto(:)a(at)evil(.)test",
	"tel:+15550100 tg://resolve":    "tel(:)+15550100 tg(:)//resolve",
	"a:b://c":                       "a(:)b(:)//c",
	"http&#58;//evil&period;test":   "http(and)#58;//evil(and)period;test",
	"[2001:db8::1]":                 "(2001(:)db8(:)(:)1)",
	"<a href=//evil.test>x</a>":     "(a href=//evil(.)test)x(/a)",
}

func TestACustomersTextIsNoLink(t *testing.T) {
	for text, want := range linkTexts {
		t.Run(text, func(t *testing.T) {
			inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
				owner, _ := storagetest.Organization(t, x.store, "acme", "enterprise", access.RoleOwner)
				sub, _ := storagetest.Subscription(t, x.store, owner, "https://login.evil.test/x", "order.*")
				by := storagetest.Operator(t, x.store).Actor("127.0.0.1", "test")
				if _, err := x.store.Directory.UpdateOrganization(t.Context(), by, owner.Organization.ID, access.OrganizationChange{Name: &text}); err != nil {
					t.Fatal(err)
				}
				x.disable(t, owner, sub)
				m := x.one(t, 20*time.Second, want+" (org_", "host login(.)evil(.)test\n")
				if strings.Contains(m.title, "vil") || strings.Contains(m.body, "evil.test") {
					t.Errorf("%s\n%s", m.title, m.body)
				}
			})
		})
	}
}

func TestAMessageForAProgram(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.options.Page = func(organization, subscription string) string {
			return "https://keys.example.com/console/" + organization + "/" + subscription
		}
		x.restart(t)
		owner, _ := x.subscribe(t, "acme", 0)
		by := storagetest.Operator(t, x.store).Actor("", "")
		if _, err := x.store.Directory.UpdateOrganization(t.Context(), by, owner.Home.ID, access.OrganizationChange{ExternalID: new("customer@42")}); err != nil {
			t.Fatal(err)
		}
		sub, _ := storagetest.Subscription(t, x.store, owner, "https://hooks.acme.example:8443/secretpath", "order.*")
		if _, err := x.store.Subscriptions.UpdateSubscription(t.Context(), by, owner.Home.RowID, sub.ID, webhook.SubscriptionChange{ExternalID: new("orders.1")}); err != nil {
			t.Fatal(err)
		}
		x.disable(t, owner, sub)
		m := x.one(t, 20*time.Second, "acme ("+owner.Home.ID+", customer(at)42): subscription "+sub.ID+", orders(.)1, host hooks(.)acme(.)example(:)8443\n"+
			"https://keys.example.com/console/"+owner.Home.ID+"/"+sub.ID+"\n")
		text, err := json.Marshal(m.members)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"kind":"subscription_disabled"`, `"title":"Keyhook: disabled subscriptions: 1"`, `"more_subscriptions":0`,
			`"subscriptions":[{"subscription_id":"` + sub.ID + `","external_id":"orders.1","organization_id":"` + owner.Home.ID + `","organization_external_id":"customer@42",` +
				`"url_host":"hooks.acme.example:8443","disabled_at":"2000-01-01T00:00:`,
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		if strings.Contains(string(text), "secretpath") {
			t.Errorf("a secret in %s", text)
		}
	})
}

func TestASubscriptionThatFailsForLongIsToldOnce(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.options.Failing = 20 * time.Minute
		x.restart(t)
		owner, subs := x.subscribe(t, "acme", 3)
		x.failOnce(t, owner, subs...)
		x.none(t, 19*time.Minute)
		x.failOnce(t, owner, subs[1]) // is told of as disabled, and not as failing
		x.one(t, 30*time.Second, "Disabled subscriptions: 1", subs[1].ID)
		x.reactivate(t, owner, subs[2]) // starts anew
		m := x.one(t, 2*time.Minute, "Failing subscriptions: 1", subs[0].ID, "Failing. First failure: 2000-01-01 00:00:0", "do recover ")
		if m.members["more_subscriptions"] != 0 {
			t.Errorf("%v", m.members)
		}
		x.none(t, long)
		x.restart(t)
		x.none(t, long)
	})
}

// TestTheNextOutageIsToldAlthoughTheFileDoesNotKnowTheFirst has two outages while the file cannot store what was told.
func TestTheNextOutageIsToldAlthoughTheFileDoesNotKnowTheFirst(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.options.Failing = 20 * time.Minute
		x.restart(t)
		owner, subs := x.subscribe(t, "acme", 2)
		x.disable(t, owner, subs[1])
		x.one(t, time.Minute, "Disabled subscriptions: 1", subs[1].ID)
		x.none(t, long)
		x.set(conditions{free: 1 << 40, refuses: errBroken})
		x.one(t, time.Minute, "the database refuses writes")
		for range 2 {
			x.failOnce(t, owner, subs[0])
			x.one(t, long, "Failing subscriptions: 1", subs[0].ID)
			x.none(t, long)
			x.reactivate(t, owner, subs[0])
		}
		x.reactivate(t, owner, subs[1])
		x.one(t, long, "Recovered subscriptions: 1", subs[1].ID)
		x.disable(t, owner, subs[1])
		x.one(t, long, "Disabled subscriptions: 1", subs[1].ID)
	})
}

func TestAFailingSubscriptionIsNotToldIfTheSettingIsOff(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 1)
		x.failOnce(t, owner, subs...)
		x.none(t, 3*time.Hour)
	})
}

// TestCredentialsThatExpireAreTold has two organizations. The next alert about an organization comes after a day.
func TestCredentialsThatExpireAreTold(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		began := time.Now()
		expiring := func(owner access.Principal, life time.Duration) access.Key {
			end := began.Add(life).UnixMilli()
			key, err := x.store.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), access.NewKey{
				Credential: access.Mint("svc"), Name: "key", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
			})
			if err != nil {
				t.Fatal(err)
			}
			return key
		}
		acme, _ := x.subscribe(t, "acme", 0)
		other, _ := x.subscribe(t, "other", 0)
		expiring(acme, 3*time.Hour)
		expiring(acme, 3*time.Hour)
		expiring(acme, 26*time.Hour)
		rotated := expiring(acme, 26*time.Hour)
		end := began.Add(150 * time.Minute).UnixMilli()
		if _, err := x.store.Directory.CreateToken(t.Context(), storagetest.Operator(t, x.store).Actor("", ""),
			other.User.ID, other.Organization.ID, access.Mint(access.TokenPrefix), "laptop", &end); err != nil {
			t.Fatal(err)
		}
		x.none(t, 25*time.Minute)
		m := x.one(t, 10*time.Minute, "access tokens expire soon: 1", "other (org_",
			"API keys: 0, access tokens: 1. The first ends at 2000-01-01 02:30:00 UTC", "do list_audit "+other.Organization.ID+" access_token_expiring\n")
		if m.members["more_organizations"] != 0 {
			t.Errorf("%v", m.members)
		}
		x.one(t, 30*time.Minute, "acme (org_", "API keys: 2, access tokens: 0")
		x.restart(t)
		x.none(t, 30*time.Minute) // the other keys are announced, but acme was told today
		x.restartAfter(t, 22*time.Hour)
		x.none(t, time.Hour)
		if _, err := x.store.Directory.RotateKey(t.Context(), acme, acme.Actor("", ""), rotated.ID, access.Mint("svc"), time.Hour); err != nil {
			t.Fatal(err)
		}
		x.one(t, 2*time.Hour, "acme (org_", "API keys: 1,")
		x.none(t, 2*time.Hour)
	})
}

// TestLeakedCredentialsAreTold has two organizations. A report during the interval is told after it, also after a restart, and also while
// the file cannot store what was told.
func TestLeakedCredentialsAreTold(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		acme, _ := x.subscribe(t, "acme", 0)
		other, token := storagetest.Organization(t, x.store, "other", "enterprise", access.RoleOwner)
		leak := func(c access.Credential) {
			if err := x.store.Directory.RevokeLeaked(t.Context(), c.Digest(), "192.0.2.1", "req"); err != nil {
				t.Fatal(err)
			}
		}
		leakKey := func() {
			_, key := storagetest.Key(t, x.store, acme, access.EventsRead)
			leak(key)
		}
		x.none(t, long)
		storagetest.Key(t, x.store, acme, access.EventsRead) // nobody reports this one
		leakKey()
		leakKey()
		m := x.one(t, time.Minute, "tokens were reported as leaked: 1", "acme (org_",
			"API keys: 2, access tokens: 0. The first was reported at 2000-01-01 00:40:00 UTC", "do list_audit "+acme.Organization.ID+" api_key_revoked\n")
		if list, _ := m.members["organizations"].([]map[string]any); len(list) != 1 || list[0]["first_reported_at"] == nil || m.members["kind"] != "credentials_leaked" {
			t.Errorf("%v", m.members)
		}
		leak(token)
		x.none(t, 5*time.Minute)
		x.restart(t)
		x.one(t, 15*time.Minute, "other (org_", "API keys: 0, access tokens: 1", "do list_audit "+other.Organization.ID+" access_token_revoked\n")
		x.none(t, long)
		x.set(conditions{free: 1 << 40, refuses: errBroken})
		x.take(long)
		leakKey()
		x.one(t, long, "reported as leaked", "API keys: 1,")
		leakKey()
		x.one(t, long, "reported as leaked", "API keys: 2,")
		x.set(healthy)
		x.one(t, long, "the database takes writes again")
		x.none(t, long)
	})
}

// TestALeakReportedByAClockThatWasAhead is told at once, and once.
func TestALeakReportedByAClockThatWasAhead(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		acme, _ := x.subscribe(t, "acme", 0)
		_, key := storagetest.Key(t, x.store, acme, access.EventsRead)
		if err := x.store.Directory.RevokeLeaked(t.Context(), key.Digest(), "192.0.2.1", "req"); err != nil {
			t.Fatal(err)
		}
		storagetest.Exec(t, x.store, "UPDATE api_keys SET leaked_at = leaked_at + ? WHERE leaked_at IS NOT NULL", (400 * 24 * time.Hour).Milliseconds())
		x.one(t, time.Minute, "tokens were reported as leaked: 1", "acme (org_")
		x.none(t, 2*time.Hour)
		x.restart(t)
		x.none(t, 2*time.Hour)
	})
}

// TestALeakHidesNoExpiry has both for one organization, while the file cannot store what was told. The credential that expires has to
// wait for the interval, and meanwhile the leak is told.
func TestALeakHidesNoExpiry(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		acme, _ := x.subscribe(t, "acme", 0)
		other, _ := x.subscribe(t, "other", 0)
		x.set(conditions{free: 1 << 40, refuses: errBroken})
		x.one(t, long, "the database refuses writes")
		began := time.Now()
		for owner, life := range map[*access.Principal]time.Duration{&other: 121 * time.Minute, &acme: 131 * time.Minute} {
			end := began.Add(life).UnixMilli()
			if _, err := x.store.Directory.CreateKey(t.Context(), *owner, owner.Actor("", ""), access.NewKey{
				Credential: access.Mint("svc"), Name: "key", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
			}); err != nil {
				t.Fatal(err)
			}
		}
		x.one(t, 12*time.Minute, "access tokens expire soon: 1", "other (org_")
		x.none(t, 9*time.Minute)
		_, key := storagetest.Key(t, x.store, acme, access.EventsRead)
		if err := x.store.Directory.RevokeLeaked(t.Context(), key.Digest(), "192.0.2.1", "req"); err != nil {
			t.Fatal(err)
		}
		x.one(t, time.Minute, "tokens were reported as leaked: 1", "acme (org_")
		x.one(t, long, "access tokens expire soon: 1", "acme (org_")
		x.set(healthy)
		x.one(t, long, "the database takes writes again")
		x.none(t, long)
	})
}

// TestManyOrganizationsInOneMessage has long names. Some services refuse a message of more than 4,000 characters.
func TestManyOrganizationsInOneMessage(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.options.Page = func(organization, _ string) string {
			return strings.Repeat("https://keys.example.com/", 8) + organization
		}
		x.restart(t)
		for i := range 12 {
			owner, _ := x.subscribe(t, strings.Repeat("long name ", 5)+fmt.Sprint(i), 0)
			_, key := storagetest.Key(t, x.store, owner, access.EventsRead)
			if err := x.store.Directory.RevokeLeaked(t.Context(), key.Digest(), "192.0.2.1", "req"); err != nil {
				t.Fatal(err)
			}
		}
		m := x.one(t, time.Minute, "tokens were reported as leaked: 12")
		named := strings.Count(m.body, "do list_audit ")
		if more := fmt.Sprintf("And %d more organizations.", 12-named); len(m.body) > alert.MaxBody+200 || named < 5 || !strings.Contains(m.body, more) {
			t.Errorf("%d bytes name %d organizations, want %q:\n%s", len(m.body), named, more, m.body)
		}
	})
}

// TestReadsThatFailAreLoggedOnce has reads that fail for minutes beside others that succeed.
func TestReadsThatFailAreLoggedOnce(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		failing := healthy
		failing.unread = errBroken
		for i := range 2 {
			x.set(failing)
			time.Sleep(5 * time.Minute)
			if n := x.log.count("cannot read of what alerts must tell"); n != i+1 {
				t.Errorf("outage %d: %d warnings in all", i+1, n)
			}
			x.set(healthy)
			time.Sleep(time.Minute)
		}
	})
}
