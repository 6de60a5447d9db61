package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const example = "log:\n  level: debug\n"

// run runs one command line. more are commands that main adds.
func run(t *testing.T, args []string, more ...*cobra.Command) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	root := cli.New(cli.Options{In: strings.NewReader(""), Out: &out, Err: &err, Example: []byte(example), Schema: storagetest.Schema(t)})
	root.AddCommand(more...)
	code = cli.Run(t.Context(), root, args)
	return code, out.String(), err.String()
}

// serve is like the command serve of main, without a server.
func serve(result error) *cobra.Command {
	cmd := &cobra.Command{Use: "serve", RunE: func(cmd *cobra.Command, _ []string) error {
		if _, err := config.Load(cmd.Flags()); err != nil {
			return err
		}
		return result
	}}
	config.Flags(cmd.Flags())
	return cmd
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		args   string
		result error
		code   int
		stderr string // all of it where it is one line; else what is in it
	}{
		{"a command that succeeds gives 0 and no error", "serve --listen :1", nil, cli.ExitOK, ""},
		{"a command that fails gives 1 and its error in one line", "serve", errors.New("the file is locked"), cli.ExitFailure,
			"keyhook: the file is locked\n"},
		{"an unknown flag gives 2", "serve --lsten :1", nil, cli.ExitUsage, "keyhook: unknown flag: --lsten; did you mean --listen? (see"},
		{"a flag without its value gives 2", "serve --listen", nil, cli.ExitUsage,
			"keyhook: flag needs an argument: --listen (see keyhook serve --help)\n"},
		{"an unexpected argument gives 2", "serve now", nil, cli.ExitUsage,
			"keyhook: \"now\" is one argument too many; write: keyhook serve [flags] (see keyhook serve --help)\n"},
		{"too many arguments give 2", "config init a b", nil, cli.ExitUsage,
			"keyhook: \"b\" is one argument too many; write: keyhook config init [FILE] [flags] (see keyhook config init --help)\n"},
		{"an unknown command gives 2 and the nearest one", "sevre", nil, cli.ExitUsage,
			"keyhook: unknown command \"sevre\"; did you mean serve? (see keyhook --help)\n"},
		{"an unknown command of a group gives 2", "config reload", nil, cli.ExitUsage,
			"keyhook: unknown command \"reload\" (see keyhook config --help)\n"},
		{"a wrong setting gives 2", "serve --webhooks.timeout=5", nil, cli.ExitUsage,
			"keyhook: wrong setting: --webhooks.timeout: \"5\" has no unit; write \"5s\" for seconds, or another unit: ms, m, h, d\n"},
		{"several wrong settings are all named", "serve --webhooks.timeout=5 --keys.prefix=X", nil, cli.ExitUsage, "2 wrong settings"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, strings.Fields(tt.args), serve(tt.result))
			if code != tt.code || stdout != "" {
				t.Errorf("code %d, output %q; want %d and none", code, stdout, tt.code)
			}
			if strings.Contains(tt.stderr, "\n") && stderr != tt.stderr || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("errors:\n%swant:\n%s", stderr, tt.stderr)
			}
		})
	}

	t.Run("each error has its code, also when it is wrapped", func(t *testing.T) {
		t.Parallel()
		for err, want := range map[error]int{
			storage.ErrNewerSchema: cli.ExitNewer, storage.ErrForeignFile: cli.ExitFile, storage.ErrSchema: cli.ExitFile,
			storage.ErrLost: cli.ExitFile, storage.ErrDamaged: cli.ExitFile, storage.ErrKey: cli.ExitKey,
			storage.ErrKeyMissing: cli.ExitKey, storage.ErrInUse: cli.ExitInUse, disk.ErrAccess: cli.ExitPlace,
			disk.ErrFileSystem: cli.ExitPlace, storage.ErrFailed: cli.ExitDisk, storage.ErrNoDatabase: cli.ExitFile,
		} {
			code, _, stderr := run(t, []string{"serve"}, serve(fmt.Errorf("open the file: %w", errors.Join(err, errors.New("and more")))))
			if code != want || !strings.Contains(stderr, err.Error()) {
				t.Errorf("%v: code %d, want %d; errors %q", err, code, want, stderr)
			}
		}
	})

	t.Run("rekey refuses without a database, and makes none", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		code, _, stderr := run(t, []string{"rekey", "--storage.path=" + filepath.Join(dir, "keyhook.db")})
		if code != cli.ExitFile || !strings.Contains(stderr, "storage.path") {
			t.Errorf("code %d, errors %q", code, stderr)
		}
		if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
			t.Errorf("it made %v, error %v", made, err)
		}
	})

	t.Run("no command, or only a group, prints the help", func(t *testing.T) {
		t.Parallel()
		for args, want := range map[string]string{"": "version", "config": "init"} {
			code, stdout, stderr := run(t, strings.Fields(args))
			if code != cli.ExitOK || !strings.Contains(stdout, want) || stderr != "" {
				t.Errorf("%q: code %d, errors %q, output:\n%s", args, code, stderr, stdout)
			}
		}
	})

	t.Run("the help of a command with settings shows three flags, not forty", func(t *testing.T) {
		t.Parallel()
		_, stdout, _ := run(t, []string{"serve", "--help"}, serve(nil))
		for _, flag := range []string{"--config file", "--dev", "--listen host:port", "default \"127.0.0.1:8080\""} {
			if !strings.Contains(stdout, flag) {
				t.Errorf("no %s in:\n%s", flag, stdout)
			}
		}
		if strings.Contains(stdout, "--webhooks") {
			t.Errorf("more than three:\n%s", stdout)
		}
	})
}

func TestConfigShow(t *testing.T) {
	t.Parallel()
	t.Run("shows each setting with its source, and no secret", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "k.yaml")
		if err := os.WriteFile(path, []byte("bootstrap:\n  token: canary-0123456789-0123456789\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, strings.Fields("config show --webhooks.retry_max=90m --dev --config "+path))
		if code != cli.ExitOK || stderr != "" || strings.Contains(stdout, "canary") {
			t.Errorf("code %d, errors %q, output:\n%s", code, stderr, stdout)
		}
		var got [][]string
		for line := range strings.Lines(stdout) {
			got = append(got, strings.Fields(line))
		}
		// One line for each setting, and the heads. The file of a secret is the source of the secret, not a setting of its own.
		if len(got) != len(config.Settings())-4+1 {
			t.Errorf("%d lines for %d settings", len(got), len(config.Settings()))
		}
		for _, want := range [][]string{
			{"SETTING", "VALUE", "SOURCE"},
			{"server.listen", "127.0.0.1:8080", "default"},
			{"server.base_url", "-", "default"},
			{"webhooks.retry_max", "1h30m", "--webhooks.retry_max"},
			{"storage.retention_events", "720h", "default"},
			{"egress.allow_http", "true", "--dev"},
			{"egress.allowed_networks", "127.0.0.0/8,", "::1/128", "--dev"},
			{"bootstrap.token", "[redacted]", path + ":2"},
			{"encryption.key", "-", "default"},
			{"log.level", "info", "default"},
		} {
			if !contains(got, want) {
				t.Errorf("no line %v in:\n%s", want, stdout)
			}
		}
	})
	t.Run("reports a wrong setting and exits with 2", func(t *testing.T) {
		t.Parallel()
		code, stdout, stderr := run(t, []string{"config", "show", "--log.level=loud"})
		if code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, "log.level") {
			t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
		}
	})
}

func contains(lines [][]string, want []string) bool {
	for _, line := range lines {
		if cmp.Equal(line, want) {
			return true
		}
	}
	return false
}

func TestConfigInit(t *testing.T) {
	t.Parallel()
	t.Run("writes the example to a file that only its owner may read", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "k.yaml")
		code, stdout, stderr := run(t, []string{"config", "init", path})
		if code != cli.ExitOK || stderr != "" || !strings.Contains(stdout, "keyhook serve --config "+path) {
			t.Errorf("code %d, errors %q, output %q", code, stderr, stdout)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != example {
			t.Errorf("file %q, error %v", text, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
	})
	t.Run("refuses to overwrite a file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "k.yaml")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, []string{"config", "init", path})
		if code != cli.ExitFailure || stderr != "keyhook: "+path+" exists already; remove it, or give another file\n" {
			t.Errorf("code %d, errors %q", code, stderr)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
			t.Errorf("file %q, error %v", text, err)
		}
	})
	t.Run("says why it cannot write", func(t *testing.T) {
		t.Parallel()
		code, _, stderr := run(t, []string{"config", "init", filepath.Join(t.TempDir(), "none", "k.yaml")})
		if code != cli.ExitFailure || !strings.Contains(stderr, "no such file or directory") {
			t.Errorf("code %d, errors %q", code, stderr)
		}
	})
}

// Not parallel: it changes the working directory.
func TestConfigInitWithoutAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := run(t, []string{"config", "init"}); code != cli.ExitOK || stderr != "" {
		t.Fatalf("code %d, errors %q", code, stderr)
	}
	if text, err := os.ReadFile("keyhook.yaml"); err != nil || string(text) != example {
		t.Errorf("file %q, error %v", text, err)
	}
}

func TestWelcome(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:8080"
	made := cli.NewFirstStart(config.Bootstrap{})
	token, link := made.Token.Reveal(), made.Link.Reveal()
	setting := redact.New("operator-token-of-the-settings")
	for _, tt := range []struct {
		name         string
		setting      redact.Text
		console      bool
		shows, hides []string
	}{
		{"has a token and a link", redact.Text{}, true, []string{"  token    " + token + " ", "\nConsole: " + url + "/console/#link=" + link + "\n", "Bearer " + token + "' " + url + "/api/v1/whoami/\n"}, nil},
		{"has no link without a console", redact.Text{}, false, []string{"  token    " + token + " "}, []string{"onsole", "link"}},
		{"has no secret if the token is a setting", setting, true, []string{"  console  " + url + "/console/\n", "bootstrap.token\n"}, []string{"Bearer", "link", setting.Reveal()}},
		{"has neither", setting, false, []string{"bootstrap.token\n"}, []string{"onsole", "Bearer", setting.Reveal()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			first := made
			if !tt.setting.IsZero() {
				first = cli.NewFirstStart(config.Bootstrap{Token: tt.setting})
			}
			c, err := config.Load(nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Console.Enabled = tt.console
			first.Welcome(&out, c, url)
			for _, text := range append(tt.shows, "address  "+url+"\n") {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %q in:%s", text, out.String())
				}
			}
			for _, text := range tt.hides {
				if strings.Contains(out.String(), text) {
					t.Errorf("%q in:%s", text, out.String())
				}
			}
		})
	}
}
