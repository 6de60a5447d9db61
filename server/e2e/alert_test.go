package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// alerts takes the messages that a server sends to an alert channel.
func alerts(tb testing.TB) (channel string, messages chan string) {
	tb.Helper()
	messages = make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		messages <- string(text)
	}))
	tb.Cleanup(s.Close)
	return "generic+" + s.URL + "/alertcanary?token=alertcanary", messages
}

// nextAlert waits for a message with these texts.
func nextAlert(tb testing.TB, p *process, messages chan string, texts ...string) {
	tb.Helper()
	select {
	case message := <-messages:
		for _, text := range texts {
			if !strings.Contains(message, text) {
				tb.Errorf("no %q in the message:\n%s", text, message)
			}
		}
		if strings.Contains(message, "hookcanary") {
			tb.Errorf("the message shows more of the URL than its host:\n%s", message)
		}
	case <-time.After(patience):
		tb.Fatalf("no message with %q after %s:\n%s", texts, patience, p.said())
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	channel, messages := alerts(t)
	down := receive(t, http.StatusOK, 0)
	down.down.Store(true)
	dir := t.TempDir()
	settings := []string{
		"KEYHOOK_ALERTS_URLS=" + channel, "KEYHOOK_ALERTS_INTERVAL=2s", "KEYHOOK_LOG_LEVEL=debug",
		"KEYHOOK_WEBHOOKS_RETRY_BASE=10ms", "KEYHOOK_WEBHOOKS_RETRY_MAX=20ms", "KEYHOOK_WEBHOOKS_FAILING_AFTER=1", "KEYHOOK_WEBHOOKS_DISABLED_AFTER=2",
	}
	p := start(t, dir, settings...)
	sub := p.subscribe(t, down.url+"hookcanary?hookcanary", "order.created")
	p.publish(t, "order.created")
	nextAlert(t, p, messages, "Disabled subscriptions: 1", "Default (org_", sub, "host 127(.)0(.)0(.)1", "Last error: http_status: 503",
		"Deliveries that wait: 1", "keyhook subscriptions recover "+sub)

	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p.end(how)
		said := p.said()
		p = start(t, dir, settings...)
		select {
		case message := <-messages:
			t.Errorf("the restart after %s repeats an alert:\n%s", how, message)
		case <-time.After(5 * time.Second): // more than two intervals
		}
		if strings.Contains(said+p.said(), "alertcanary") {
			t.Errorf("the log shows the URL of the channel:\n%s\n%s", said, p.said())
		}
	}

	down.down.Store(false)
	p.must(t, "PATCH", "/api/v1/webhooks/subscriptions/"+sub+"/", object{"is_active": true}, nil)
	nextAlert(t, p, messages, "Recovered subscriptions: 1", sub)
	// The server counts the message when its response has arrived, a moment after the channel received it.
	const counted = `keyhook_alerts_total{kind="subscription_recovered",result="sent"} 1`
	_, metrics := get(t, p.url+"/metrics")
	for deadline := time.Now().Add(patience); !strings.Contains(metrics, counted) && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		_, metrics = get(t, p.url+"/metrics")
	}
	if !strings.Contains(metrics, counted) || strings.Contains(metrics, "alertcanary") {
		t.Errorf("metrics:\n%s", metrics)
	}
}

func TestAlertTest(t *testing.T) {
	t.Parallel()
	channel, messages := alerts(t)
	dir := t.TempDir()
	code, said := finish(t, keyhook(t, dir, "alert", "test", "--alerts.urls", channel))
	if code != 0 || !strings.Contains(said, "generic 1  sent") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if message := <-messages; !strings.Contains(message, "This is a test.") {
		t.Errorf("message %q", message)
	}
	code, said = finish(t, keyhook(t, dir, "alert", "test", "--alerts.urls", channel+" ntfy://alertcanary:alertcanary@127.0.0.1:1/alertcanary"))
	if code != 1 || !strings.Contains(said, "generic 1  sent") || !strings.Contains(said, "ntfy 2     failed") || !strings.Contains(said, "connection refused") || strings.Contains(said, "alertcanary") {
		t.Errorf("exit code %d: %s", code, said)
	}
	proxy := receive(t, http.StatusOK, 0)
	for _, url := range []string{"generic+http://alerts.invalid/", "ntfy://alerts.invalid/topic?scheme=http", "gotify://alerts.invalid/Atoken123456789?disabletls=yes"} {
		cmd := keyhook(t, dir, "alert", "test", "--alerts.urls", url)
		cmd.Env = append(cmd.Env, "HTTP_PROXY="+proxy.url, "HTTPS_PROXY="+proxy.url)
		if code, said := finish(t, cmd); code != 1 || proxy.requests() > 0 {
			t.Errorf("%s used the proxy of the environment: exit code %d: %s", url, code, said)
		}
	}
	for _, command := range [][]string{{"config", "show"}, {"doctor"}} {
		if _, said := finish(t, keyhook(t, dir, append(command, "--alerts.urls", channel)...)); strings.Contains(said, "alertcanary") || !strings.Contains(said, "alerts") {
			t.Errorf("%s: %s", command, said)
		}
	}
}
