package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/redact"
)

// secret embeds Text, as the types of secrets do.
type secret struct{ redact.Text }

func TestText(t *testing.T) {
	t.Parallel()
	const raw = "canary-of-a-secret"
	text, embedded := redact.New(raw), secret{redact.New(raw)}
	held := struct {
		text     redact.Text
		embedded secret
		Text     redact.Text
		Pointer  *redact.Text
		Embedded secret
		List     []secret
		Map      map[secret]redact.Text
		Any      any
	}{text, embedded, text, &text, embedded, []secret{embedded}, map[secret]redact.Text{embedded: text}, embedded}
	values := []any{text, &text, embedded, &embedded, held, &held}

	t.Run("gives its text back only through Reveal", func(t *testing.T) {
		t.Parallel()
		if text.Reveal() != raw || embedded.Reveal() != raw || text.IsZero() {
			t.Error("Reveal does not give the text back")
		}
	})
	t.Run("is zero where there is no text", func(t *testing.T) {
		t.Parallel()
		for _, none := range []redact.Text{{}, redact.New("")} {
			if !none.IsZero() || none.Reveal() != "" {
				t.Errorf("IsZero is %v", none.IsZero())
			}
		}
	})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%t", "%p", "%10.3f"} {
		t.Run("is redacted under "+verb, func(t *testing.T) {
			t.Parallel()
			for _, v := range append(values, fmt.Errorf("wrapped: %v", text)) {
				if printed := fmt.Sprintf(verb, v); leaks(printed, raw) {
					t.Errorf("%T is printed as %s", v, printed)
				}
			}
		})
	}
	t.Run("is redacted in logs", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
			log := slog.New(handler)
			log.Info("said", "text", text, "embedded", embedded)
			log.With("text", &text).WithGroup("g").Info("said", slog.Any("embedded", &embedded))
			log.Info("said", "list", held.List, "any", held.Any)
		}
		if printed := out.String(); leaks(printed, raw) || !strings.Contains(printed, "[redacted]") {
			t.Errorf("logged %s", printed)
		}
	})
	t.Run("is redacted in JSON, as a value and as the key of a map", func(t *testing.T) {
		t.Parallel()
		for _, v := range append(values, held.Map) {
			printed, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if leaks(string(printed), raw) || !bytes.Contains(printed, []byte("[redacted]")) {
				t.Errorf("%T is marshalled as %s", v, printed)
			}
		}
	})
}

// leaks reports whether text holds the secret plainly or in hexadecimal.
func leaks(text, secret string) bool {
	return strings.Contains(text, secret) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", secret))
}
