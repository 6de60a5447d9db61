package doctor_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// run executes one command line.
func run(t *testing.T, args []string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	root := cli.New(cli.Options{In: strings.NewReader(""), Out: &out, Err: &err, Schema: storagetest.Schema(t)})
	code = cli.Run(t.Context(), root, args)
	return code, out.String(), err.String()
}

// checkup is the output of doctor --json.
type checkup struct {
	Findings []struct{ Result, Check, Text, Mend string }
	Problems int
	Warnings int
}

// examine runs doctor.
func examine(t *testing.T, args ...string) (int, checkup) {
	t.Helper()
	code, stdout, stderr := run(t, append([]string{"doctor", "--json", "--listen=127.0.0.1:0"}, args...))
	var c checkup
	if err := json.Unmarshal([]byte(stdout), &c); err != nil {
		t.Fatalf("%v: output %q, errors %q", err, stdout, stderr)
	}
	if want := map[bool]int{true: cli.ExitFailure, false: cli.ExitOK}[c.Problems > 0]; code != want {
		t.Errorf("code %d with %d problems", code, c.Problems)
	}
	return code, c
}

// has reports whether a finding of a check contains a text, in its sentence or in its mend.
func (c checkup) has(result, check, text string) bool {
	for _, f := range c.Findings {
		if f.Result == result && f.Check == check && strings.Contains(f.Text+"; "+f.Mend, text) {
			return true
		}
	}
	return false
}

// all returns the files of a directory.
func all(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

func TestDoctorChecksTheInstallation(t *testing.T) {
	t.Parallel()
	change := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// certificate makes the files of a certificate that is valid for so long.
	certificate := func(life time.Duration) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(life)}
			der, err1 := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
			private, err2 := x509.MarshalPKCS8PrivateKey(key)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			change("tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))(t, dir)
			change("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))(t, dir)
		}
	}
	tls := []string{"--server.tls_cert_file=DIR/tls.crt", "--server.tls_key_file=DIR/tls.key"}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for _, tt := range []struct {
		name                string
		change              func(t *testing.T, dir string)
		args                []string
		result, check, says string
	}{
		{"a good database", func(*testing.T, string) {}, nil, "ok", "database", "the encryption key is right"},
		{"a missing database", func(t *testing.T, dir string) {
			for name := range all(t, dir) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}, nil, "ok", "database", "There is no database yet"},
		{"a file that is not a database", change("keyhook.db", strings.Repeat("garbage ", 99)), nil, "problem", "database", "no database at all"},
		{"an empty file beside its key", change("keyhook.db", ""), nil, "problem", "database", "start with an empty database"},
		{"a database that was not closed", change("keyhook.db-wal", "something"), nil, "warning", "database", "did not close"},
		{"a database with another key", change("keyhook.db.key", strings.Repeat("ab", 32)), nil, "problem", "database", "does not fit"},
		{"a database without its key", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "keyhook.db.key")); err != nil {
				t.Fatal(err)
			}
		}, nil, "problem", "database", "encryption key is missing"},
		{"a database that other users may read", func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, "keyhook.db"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, nil, "warning", "modes", "chmod 600"},
		{"a missing directory", func(*testing.T, string) {}, []string{"--storage.path=/no/such/keyhook.db"}, "problem", "directory", "mkdir -p /no/such"},
		{"wrong settings", func(*testing.T, string) {}, []string{"--webhooks.timeout=5"}, "problem", "settings", `write "5s" for seconds, or another unit: ms, m, h, d`},
		{"a proxy network that is too large", func(*testing.T, string) {}, []string{"--server.trusted_proxies=0.0.0.0/0"}, "problem", "proxies", "server.trusted_proxies"},
		{"a proxy network that is a part of IPv4", func(*testing.T, string) {}, []string{"--server.trusted_proxies=10.0.0.1,16.0.0.0/4"}, "problem", "proxies", "from 16.0.0.0/4"},
		{"a proxy network that is a part of IPv6", func(*testing.T, string) {}, []string{"--server.trusted_proxies=2001::/16"}, "problem", "proxies", "from 2001::/16"},
		{"private networks of proxies", func(*testing.T, string) {}, []string{"--server.trusted_proxies=10.0.0.0/8,fd00::/32"}, "ok", "address", "127.0.0.1:0"},
		{"a certificate", certificate(365 * 24 * time.Hour), tls, "ok", "tls", "The server's certificate is valid for another 364 days"},
		{"a certificate that expires soon", certificate(13*24*time.Hour + time.Minute), tls, "warning", "tls", "The server's certificate expires in 13 days"},
		{"a certificate that has expired", certificate(-time.Hour), tls, "problem", "tls", "The server's certificate expired on"},
		{"a private key that other users may read", func(t *testing.T, dir string) {
			certificate(time.Hour)(t, dir)
			if err := os.Chmod(filepath.Join(dir, "tls.key"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, tls, "warning", "modes", "tls.key"},
		{"TLS under an address without it", certificate(time.Hour), append(tls[:2:2], "--server.base_url=http://keys.example.com"), "warning", "address", "set server.base_url to the https:// address"},
		{"a proxy that is not declared", func(*testing.T, string) {}, []string{"--server.base_url=https://keys.example.com"}, "warning", "address", "server.trusted_proxies"},
		{"a port that another program has", func(*testing.T, string) {}, []string{"--metrics.listen=" + taken.Addr().String()}, "problem", "port", "(metrics.listen)"},
		{"a server without TLS for other machines", func(*testing.T, string) {}, []string{"--server.listen=0.0.0.0:0"}, "warning", "address", "unencrypted"},
		{"a missing certificate", func(*testing.T, string) {}, []string{"--server.tls_cert_file=a", "--server.tls_key_file=b"}, "problem", "tls", "PEM"},
		{"a token that was encoded twice", func(*testing.T, string) {}, []string{"--bootstrap.token=YW4tb3BlcmF0b3ItdG9rZW4tb2YtdGVzdHM="}, "warning", "secrets", "base64 of another text"},
		{"a token in quotes", func(*testing.T, string) {}, []string{`--bootstrap.token="an-operator-token-of-tests"`}, "warning", "secrets", "quotes"},
		{"a network that is both allowed and denied", func(*testing.T, string) {}, []string{"--egress.allowed_networks=10.1.0.0/16", "--egress.denied_networks=10.0.0.0/8"}, "warning", "egress", "10.0.0.0/8"},
		{"deliveries to internal networks", func(*testing.T, string) {}, []string{"--egress.allowed_networks=169.254.0.0/16"}, "warning", "egress", "169.254.0.0/16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "keyhook.db")
			_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
			stop()
			if err := os.Chmod(path, 0o600); err != nil { // the program sets its umask, this test does not
				t.Fatal(err)
			}
			tt.change(t, dir)
			before := all(t, dir)
			args := strings.Split(strings.ReplaceAll(strings.Join(tt.args, "\n"), "DIR", dir), "\n")
			if len(tt.args) == 0 {
				args = nil
			}
			_, got := examine(t, append([]string{"--storage.path=" + path}, args...)...)
			if !got.has(tt.result, tt.check, tt.says) {
				t.Errorf("no %s of %s with %q in %+v", tt.result, tt.check, tt.says, got)
			}
			if tt.result == "ok" && got.Problems > 0 {
				t.Errorf("%+v", got)
			}
			for _, f := range got.Findings {
				if strings.Contains(f.Text+f.Mend, "operator") {
					t.Errorf("it shows a secret: %+v", f)
				}
			}
			if after := all(t, dir); !maps.Equal(before, after) {
				t.Error("it changed or made files")
			}
		})
	}
}

func TestDoctorChecksAReceiver(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 100)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Method + " " + r.URL.Path
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/hook", http.StatusMovedPermanently)
		case "/rude":
			w.Header().Set("Location", "/\u009b31m")
			w.WriteHeader(http.StatusFound)
		case "/late":
			w.Header().Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		case "/post":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case "/closed":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(receiver.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	let := []string{"--egress.allowed_networks=127.0.0.1", "--egress.ca_file=" + authority}
	for _, tt := range []struct {
		name, url           string
		args                []string
		result, check, says string
		asks                bool
	}{
		{"a good receiver", receiver.URL + "/hook", let, "ok", "receiver", "responds to HEAD with 200", true},
		{"the certificate of a receiver", receiver.URL + "/hook", let, "ok", "tls", "TLS 1.3", true},
		{"the response times of a receiver", receiver.URL + "/hook", let, "ok", "times", ", first byte after ", true},
		{"a receiver that accepts only POST", receiver.URL + "/post", let, "ok", "receiver", "HEAD and not POST", true},
		{"a receiver that redirects", receiver.URL + "/moved", let, "problem", "receiver", "a delivery follows no redirect", true},
		{"a receiver with control characters for a terminal", receiver.URL + "/rude", let, "problem", "receiver", `302 to /\u009b31m)`, true},
		{"a receiver with a wrong clock", receiver.URL + "/late", let, "problem", "clock", "differs from the clock of this machine by 10m", true},
		{"a receiver that wants a login", receiver.URL + "/closed", let, "warning", "receiver", "no other credential", true},
		{"a certificate of an unknown authority", receiver.URL, let[:1], "problem", "tls", "egress.ca_file", false},
		{"an internal address", receiver.URL, nil, "problem", "url", "address_not_allowed", false},
		{"how to allow an internal address", receiver.URL, nil, "problem", "dns", "add 127.0.0.1 to egress.allowed_networks", false},
		{"a denied network", receiver.URL, append(let[:2:2], "--egress.denied_networks=127.0.0.0/8"), "problem", "dns", "remove the network of this address from egress.denied_networks", false},
		{"a URL without TLS", "http://example.com/", nil, "problem", "url", "https_required", false},
		{"what allows it", "http://example.com/", nil, "problem", "url", "Begin the URL with https://, or allow it on the server: egress.allow_http", false},
		{"a receiver that does not listen", "https://127.0.0.1:1/", let, "problem", "receiver", "cannot be reached", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got := examine(t, append(tt.args, tt.url, "--storage.path="+filepath.Join(t.TempDir(), "keyhook.db"))...)
			if !got.has(tt.result, tt.check, tt.says) {
				t.Errorf("no %s of %s with %q in %+v", tt.result, tt.check, tt.says, got)
			}
			asked := ""
			select {
			case asked = <-requests:
			default:
			}
			if strings.HasPrefix(asked, "HEAD ") != tt.asks || len(requests) > 0 {
				t.Errorf("it sent %q, and %d more requests", asked, len(requests))
			}
		})
	}
}

func TestDoctorSaysWhatToDoApartFromWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ arg, check, text, mend string }{
		{"--webhooks.timeout=5", "settings", `--webhooks.timeout: "5" has no unit`, `write "5s" for seconds, or another unit: ms, m, h, d`},
		{"--storage.path=/no/such/keyhook.db", "directory", "there is no directory /no/such", "create the directory (mkdir -p /no/such), or set storage.path"},
	} {
		_, got := examine(t, tt.arg)
		for _, f := range got.Findings {
			if f.Result == "problem" && (f.Check != tt.check || !strings.HasSuffix(f.Text, tt.text) || f.Mend != tt.mend) {
				t.Errorf("%s: %+v", tt.arg, f)
			}
		}
		if got.Problems != 1 {
			t.Errorf("%s: %d problems", tt.arg, got.Problems)
		}
	}
}

func TestDoctorBesideARunningServer(t *testing.T) {
	t.Parallel()
	defaults, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	dev := defaults.Dev().Texts()
	for _, tt := range []struct {
		name                string
		settings            map[string]string // of the server; nil if it does not tell them
		url                 string
		result, check, says string
	}{
		{"judges a URL with the settings of the server", dev, "http://127.0.0.1:9/hook", "ok", "url", "may have the URL"},
		{"judges another URL with them too", dev, "http://10.1.2.3/hook", "problem", "url", "refused"},
		{"judges the rest with them", dev, "", "warning", "egress", "http:// URLs"},
		{"says how they differ", dev, "", "ok", "settings", `egress.allow_http is "true" there and "false" here`},
		{"judges what it found if the server does not tell", nil, "http://127.0.0.1:9/hook", "problem", "url", "refused"},
		{"knows that the server has alerts", map[string]string{"alerts.urls": "[redacted]"}, "", "ok", "alerts", "The server has alerts.urls"},
		{"says that the server does not tell", nil, "", "warning", "settings", "judges the settings that it found"},
		{"says that it does not understand them", map[string]string{"log.level": "loud"}, "", "warning", "settings", "same version"},
		{"keeps what the server does not know", map[string]string{"future.setting": "1", "log.level": "debug"}, "", "ok", "settings", `log.level is "debug" there`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			storagetest.OpenWith(t, storagetest.Options(t, path)) // this test owns the file
			listen(t, path, tt.settings)
			args := []string{"--storage.path=" + path}
			if tt.url != "" {
				args = append(args, tt.url)
			}
			if _, got := examine(t, args...); !got.has(tt.result, tt.check, tt.says) {
				t.Errorf("no %s of %s with %q in %+v", tt.result, tt.check, tt.says, got)
			}
		})
	}
	t.Run("says that it judges what it found if no server is running", func(t *testing.T) {
		t.Parallel()
		if _, got := examine(t, "--storage.path="+filepath.Join(t.TempDir(), "keyhook.db")); !got.has("ok", "settings", "No server is running, so doctor judges the settings that it found") {
			t.Errorf("%+v", got)
		}
	})
}

// listen answers on the local socket like a server with these settings.
func listen(t *testing.T, database string, settings map[string]string) {
	t.Helper()
	l, err := socket.Listen(database, slog.New(slog.DiscardHandler))
	if err != nil || l == nil {
		t.Fatalf("listener %v, error %v", l, err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "ready", "checks": map[string]any{}, "settings": settings}) // the client sees an error
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // http.ErrServerClosed
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
}

// TestDoctorKnowsDamagedSecrets is not parallel, because it sets a variable of the process.
func TestDoctorKnowsDamagedSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" an-operator-token-of-tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KEYHOOK_BOOTSTRAP_TOKEN_FILE", file)
	_, got := examine(t, "--storage.path="+filepath.Join(t.TempDir(), "keyhook.db"))
	if !got.has("problem", "settings", "visible ASCII characters") || !got.has("warning", "secrets", "bootstrap.token: the value has white space around it") {
		t.Errorf("%+v", got)
	}
}

// TestDoctorChecksTheModesOfSecrets is not parallel, because it sets variables of the process.
func TestDoctorChecksTheModesOfSecrets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"CONSOLE_LOGO", "BOOTSTRAP_TOKEN"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("an-operator-token-of-tests"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KEYHOOK_"+name+"_FILE", file)
	}
	_, got := examine(t, "--storage.path="+filepath.Join(dir, "keyhook.db"))
	if !got.has("warning", "modes", "BOOTSTRAP_TOKEN") || got.has("warning", "modes", "CONSOLE_LOGO") {
		t.Errorf("%+v", got)
	}
}

func TestDoctorChecksTheModesOfFilesThatSettingsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings, token := filepath.Join(dir, "k.yaml"), filepath.Join(dir, "token")
	for name, text := range map[string]string{token: "an-operator-token-of-tests", settings: "bootstrap: {token_file: " + token + "}"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, got := examine(t, "--storage.path="+filepath.Join(dir, "keyhook.db"), "--config="+settings)
	if !got.has("warning", "modes", settings) || !got.has("warning", "modes", token) {
		t.Errorf("%+v", got)
	}
}

func TestDoctorIsReadable(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, []string{"doctor", "--listen=127.0.0.1:0", "--storage.path=/no/such/keyhook.db"})
	if code != cli.ExitFailure || !strings.HasPrefix(stderr, "keyhook: 1 problem and ") {
		t.Errorf("code %d, errors %q", code, stderr)
	}
	lines := strings.Split(stdout, "\n")
	column := strings.Index(lines[0], "The settings are valid")
	for _, line := range lines[:len(lines)-1] {
		if column < 0 || len(line) <= column || line[column-1] != ' ' || line[column] == ' ' {
			t.Errorf("not aligned: %q in\n%s", line, stdout)
		}
	}
	if !strings.Contains(stdout, "→ create the directory (mkdir -p /no/such), or set storage.path\n") {
		t.Errorf("no mend in\n%s", stdout)
	}
}
