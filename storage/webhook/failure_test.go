package webhook_test

import (
	"testing"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestFailure(t *testing.T) {
	t.Parallel()
	t.Run("is stored and shown as its class and its text", func(t *testing.T) {
		t.Parallel()
		f := webhook.Failure{Class: webhook.HTTPStatus, Text: "503"}
		if f.String() != "http_status: 503" || f.IsZero() {
			t.Errorf("it is %q", f)
		}
	})
	t.Run("is empty where nothing failed", func(t *testing.T) {
		t.Parallel()
		if f := (webhook.Failure{}); f.String() != "" || !f.IsZero() {
			t.Errorf("it is %q", f)
		}
	})
}
