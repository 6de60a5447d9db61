package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// canary is a valid secret, which must never be shown.
const canary = "canary0123456789012345678901234567890123456"

// private holds a configuration in a field whose methods fmt cannot call.
type private struct{ config config.Config }

func TestASecretIsShownNowhere(t *testing.T) {
	t.Parallel()
	secret := redact.New(canary)
	c := config.Default()
	c.Bootstrap.Token, c.Console.OIDCClientSecret, c.Alerts.URLs = secret, secret, []redact.Text{secret}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "token", secret, "config", c)
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", c), "%+v": fmt.Sprintf("%+v", c), "%#v": fmt.Sprintf("%#v", c), "%s": fmt.Sprintf("%s", secret),
		"%d": fmt.Sprintf("%d", secret), "%x": fmt.Sprintf("%x", secret), "%q": fmt.Sprintf("%q", secret), "a pointer": fmt.Sprint(&secret),
		"a private field": fmt.Sprintf("%v %+v %#v", private{c}, private{c}, private{c}),
		"String":          secret.String(), "JSON": string(asJSON), "the texts": fmt.Sprint(c.Texts()), "slog": log.String(),
	} {
		if strings.Contains(text, "canary") || strings.Contains(text, fmt.Sprintf("%x", "canary")) {
			t.Errorf("%s shows it: %s", name, text)
		}
	}
	if secret.Reveal() != canary {
		t.Error("Reveal does not give it back")
	}
}

func TestAnErrorShowsNoSecret(t *testing.T) {
	t.Parallel()
	short := canary[:10]
	for name, text := range map[string]string{
		"a token too short":              "bootstrap:\n  token: " + short,
		"a token that is an alias":       "bootstrap:\n  token: *" + short,
		"a token that is an anchor":      "bootstrap:\n  token: &" + short,
		"a token that is a tag":          "bootstrap:\n  token: !" + short,
		"a token that is a list":         "bootstrap:\n  token: [" + canary + "]",
		"a token twice":                  "bootstrap:\n  token: " + canary + "\n  token: " + canary,
		"a token without its space":      "bootstrap:\n  token:" + canary,
		"a token with a bad escape":      "bootstrap:\n  token: \"" + canary + "\\q\"",
		"a token with an open quote":     "bootstrap:\n  token: \"" + canary,
		"a token in place of a path":     "bootstrap:\n  token_file: " + canary,
		"a key too short":                "encryption:\n  key: " + short,
		"an alert without a service":     "alerts:\n  urls: [" + canary + "]",
		"an alert of an unknown service": "alerts:\n  urls: [\"" + short + "://" + canary + "\"]",
		"an alert with a wrong token":    "alerts:\n  urls: [\"slack://" + canary + "@" + canary + "\"]",
		"an alert that is a mapping":     "alerts:\n  urls: {" + canary + ": " + canary + "}",
		"a password in a URL":            "server:\n  base_url: https://x:" + short + "@a.example",
		"a URL that is none":             "oidc:\n  audience: a\n  issuer: https://x:" + short + "@a.example:port",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadFile(t, text+"\n")
			if strings.Contains(problemsOf(t, err).Error(), "canary") {
				t.Errorf("it is shown: %v", err)
			}
		})
	}
	t.Run("and neither does config show", func(t *testing.T) {
		t.Parallel()
		list, err := config.Sources(parse(t, "--bootstrap.token="+canary, "--encryption.key="+canary, "--alerts.urls=ntfy://"+canary+"@"+canary+"/"+canary))
		if err != nil || strings.Contains(fmt.Sprint(list), "canary") {
			t.Errorf("list %v, error %v", list, err)
		}
	})
}

func TestASecretMayComeOutOfAFile(t *testing.T) {
	t.Parallel()
	secret := func(text string, mode os.FileMode) func(t *testing.T) string {
		return func(t *testing.T) string { return write(t, "secret", text, mode) }
	}
	for _, tt := range []struct {
		name string
		path func(t *testing.T) string
		want string // of the message; empty if the canary is read
	}{
		{"as it is", secret(canary, 0o600), ""},
		{"without the line break at its end", secret(canary+"\n", 0o400), ""},
		{"without the line break of another system", secret(canary+"\r\n", 0o644), ""},
		{"but not without two of them", secret(canary+"\n\n", 0o600), "make one with"},
		{"unless it is empty", secret("", 0o600), "the file is empty"},
		{"unless it is an empty line", secret("\n", 0o600), "the file is empty"},
		{"unless it is larger than 16 KiB", secret(strings.Repeat("x", 16<<10+1), 0o600), "larger than 16384 bytes"},
		{"unless anyone may write it", secret(canary, 0o602), "chmod o-w"},
		{"unless it is not there", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, "no such file"},
		{"unless it is a directory", func(t *testing.T) string { return t.TempDir() }, "regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"bootstrap.token", "encryption.key"} {
				section, key, _ := strings.Cut(name, ".")
				path := tt.path(t)
				for source, load := range map[string]func() (config.Config, error){
					"flag": func() (config.Config, error) { return config.Load(parse(t, "--"+name+"_file", path)) },
					"file": func() (config.Config, error) { return loadFile(t, section+":\n  "+key+"_file: "+path+"\n") },
				} {
					c, err := load()
					if tt.want != "" {
						if p := problemsOf(t, err); len(p) != 1 || p[0].Setting != name || !strings.Contains(p[0].String(), tt.want) {
							t.Errorf("%s by %s: got %v, want %q", name, source, err, tt.want)
						}
						continue
					}
					if got := c.Bootstrap.Token.Reveal() + c.Encryption.Key.Reveal(); err != nil || got != canary {
						t.Errorf("%s by %s: got %q, error %v", name, source, got, err)
					}
				}
			}
		})
	}
	t.Run("unless the secret itself is set too", func(t *testing.T) {
		t.Parallel()
		path := write(t, "secret", canary, 0o600)
		_, err := loadFile(t, "bootstrap:\n  token: "+canary+"\n", "--bootstrap.token_file", path)
		if p := problemsOf(t, err); len(p) != 1 || !strings.Contains(p[0].String(), "bootstrap.token_file (--bootstrap.token_file) is set too") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnEmptySecretInTheFileIsNotSet(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"encryption.key", "bootstrap.token", "console.oidc_client_secret", "alerts.urls"} {
		section, key, _ := strings.Cut(name, ".")
		for _, empty := range []string{key, key + "_file"} {
			if _, err := loadFile(t, section+":\n  "+empty+": \"\"\n"); err != nil {
				t.Errorf("%s.%s: %v", section, empty, err)
			}
		}
	}
	path := write(t, "secret", canary, 0o600)
	c, err := loadFile(t, "encryption:\n  key: \"\"\n  key_file: "+path+"\n")
	if err != nil || c.Encryption.Key.Reveal() != canary {
		t.Errorf("with its own file: key %q, error %v", c.Encryption.Key.Reveal(), err)
	}
}

// Not parallel: it sets the environment.
func TestTheFileOfASecretMayBeNamedInTheEnvironment(t *testing.T) {
	t.Setenv("KEYHOOK_ENCRYPTION_KEY_FILE", write(t, "key", canary+"\n", 0o600))
	if c, err := config.Load(nil); err != nil || c.Encryption.Key.Reveal() != canary {
		t.Errorf("key %q, error %v", c.Encryption.Key.Reveal(), err)
	}
	t.Setenv("KEYHOOK_ENCRYPTION_KEY", canary)
	_, err := config.Load(nil)
	if p := problemsOf(t, err); len(p) != 1 || p[0].Source != "KEYHOOK_ENCRYPTION_KEY" {
		t.Errorf("with both set: got %v", err)
	}
}

func TestAlertURLs(t *testing.T) {
	t.Parallel()
	urls := []string{"ntfy://a.example/x", "smtp://b.example/?from=a@b.example&to=c@d.example,e@f.example", "https://c.example/hook"}
	for name, load := range map[string]func() (config.Config, error){
		"a list in the file": func() (config.Config, error) {
			return loadFile(t, "alerts:\n  urls:\n    - "+strings.Join(urls, "\n    - ")+"\n")
		},
		"lines in the file": func() (config.Config, error) {
			return loadFile(t, "alerts:\n  urls: |\n    "+strings.Join(urls, "\n    ")+"\n")
		},
		"commas in a flag": func() (config.Config, error) { return config.Load(parse(t, "--alerts.urls", strings.Join(urls, ", "))) },
		"spaces in a flag": func() (config.Config, error) { return config.Load(parse(t, "--alerts.urls", strings.Join(urls, " "))) },
		"a file of its own": func() (config.Config, error) {
			return config.Load(parse(t, "--alerts.urls_file", write(t, "urls", strings.Join(urls, "\r\n")+"\n", 0o600)))
		},
	} {
		t.Run("may be "+name, func(t *testing.T) {
			t.Parallel()
			c, err := load()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, url := range c.Alerts.URLs {
				got = append(got, url.Reveal())
			}
			if diff := cmp.Diff(urls, got); diff != "" {
				t.Errorf("URLs (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("are shown as their number", func(t *testing.T) {
		t.Parallel()
		list, err := config.Sources(parse(t, "--alerts.urls", strings.Join(urls, " ")))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Name == "alerts.urls" && s.Value != "[redacted], [redacted], [redacted]" {
				t.Errorf("shown as %q", s.Value)
			}
		}
	})
}
