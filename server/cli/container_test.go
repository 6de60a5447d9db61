package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// top is the directory of the module.
const top = "../../"

// instruction is one instruction of a Dockerfile, with its lines joined.
type instruction struct{ name, args string }

// readDockerfile parses the part of the syntax that our Dockerfile uses.
func readDockerfile(t *testing.T) []instruction {
	t.Helper()
	text, err := os.ReadFile(top + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var all []instruction
	logical := ""
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		rest, goesOn := strings.CutSuffix(line, `\`)
		if logical += rest; goesOn {
			continue
		}
		name, args, _ := strings.Cut(logical, " ")
		all = append(all, instruction{name, strings.TrimSpace(args)})
		logical = ""
	}
	return all
}

// argumentsOf returns the arguments of all instructions with a name.
func argumentsOf(all []instruction, name string) []string {
	var found []string
	for _, i := range all {
		if i.name == name {
			found = append(found, i.args)
		}
	}
	return found
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	all := readDockerfile(t)
	from := argumentsOf(all, "FROM")

	t.Run("builds from pinned images, with the Go of go.mod, and ends on a base without a shell", func(t *testing.T) {
		t.Parallel()
		image := regexp.MustCompile(`^(?:--platform=\$BUILDPLATFORM )?([a-z0-9./-]+):([A-Za-z0-9._-]+)(?: AS ([a-z]+))?$`)
		for _, f := range from {
			if m := image.FindStringSubmatch(f); m == nil || m[2] == "latest" {
				t.Errorf("FROM %s: no pinned image", f)
			}
		}
		mod, err := os.ReadFile(top + "go.mod")
		if err != nil {
			t.Fatal(err)
		}
		version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(mod))
		if len(from) != 2 || !strings.HasPrefix(from[0], "--platform=$BUILDPLATFORM golang:"+version[1]+"-") {
			t.Errorf("FROM %v where go.mod has go %s", from, version[1])
		}
		if last := from[len(from)-1]; !regexp.MustCompile(`^gcr\.io/distroless/static-debian\d+:nonroot$`).MatchString(last) {
			t.Errorf("the base is %s", last)
		}
	})

	t.Run("builds a static binary for the requested platform", func(t *testing.T) {
		t.Parallel()
		build := strings.Join(argumentsOf(all, "RUN"), "\n")
		for _, want := range []string{"CGO_ENABLED=0", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH", "-trimpath"} {
			if !strings.Contains(build, want) {
				t.Errorf("no %s in %s", want, build)
			}
		}
		release, err := os.ReadFile(top + ".github/release/build")
		if err != nil {
			t.Fatal(err)
		}
		for _, flags := range []string{"-trimpath -buildvcs=true", `"-s -w -buildid= -X $(go list -m)/server/build.version=$`} {
			if !strings.Contains(build, flags) || !strings.Contains(string(release), flags) {
				t.Errorf("the image and the archives do not both have %s", flags)
			}
		}
		for _, arg := range []string{"TARGETOS", "TARGETARCH", "VERSION="} {
			if !slices.Contains(argumentsOf(all, "ARG"), arg) {
				t.Errorf("no ARG %s, so that it would be empty", arg)
			}
		}
	})

	t.Run("copies only from stages that exist, and downloads nothing", func(t *testing.T) {
		t.Parallel()
		if len(argumentsOf(all, "ADD")) > 0 {
			t.Error("ADD unpacks and downloads: use COPY")
		}
		for _, args := range argumentsOf(all, "COPY") {
			if _, rest, isFrom := strings.Cut(args, "--from="); isFrom {
				stage, _, _ := strings.Cut(rest, " ")
				if !slices.ContainsFunc(from, func(f string) bool { return strings.HasSuffix(f, " AS "+stage) }) {
					t.Errorf("COPY %s: no such stage", args)
				}
			}
		}
	})

	t.Run("runs as an unprivileged user, contains no secret, and declares its port and volume", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string]string{
			"USER": "65532:65532", "VOLUME": "/data", "EXPOSE": "8080", "STOPSIGNAL": "SIGTERM", "ENTRYPOINT": `["/keyhook"]`, "CMD": `["serve"]`,
		} {
			if got := argumentsOf(all, name); len(got) != 1 || got[0] != want {
				t.Errorf("%s %v, want %s", name, got, want)
			}
		}
		for _, text := range slices.Concat(argumentsOf(all, "ENV"), argumentsOf(all, "ARG")) {
			if regexp.MustCompile(`(?i)token|secret|password|_key\b|encryption`).MatchString(text) {
				t.Errorf("it would be in the image for everybody to read: %s", text)
			}
		}
		if env := strings.Join(argumentsOf(all, "ENV"), " "); !strings.Contains(env, "KEYHOOK_STORAGE_PATH=/data/") || !strings.Contains(env, "KEYHOOK_SERVER_LISTEN=0.0.0.0:8080") {
			t.Errorf("ENV %s", env)
		}
		for _, label := range []string{"title", "description", "source", "version", "revision", "base.name"} {
			if !strings.Contains(strings.Join(argumentsOf(all, "LABEL"), " "), "org.opencontainers.image."+label+"=") {
				t.Errorf("no label %s", label)
			}
		}
	})

	t.Run("uses the binary for the health check, because the image has no curl", func(t *testing.T) {
		t.Parallel()
		got := argumentsOf(all, "HEALTHCHECK")
		if len(got) != 1 || !strings.HasSuffix(got[0], `CMD ["/keyhook", "healthcheck"]`) || !strings.Contains(got[0], "--start-period=") {
			t.Errorf("HEALTHCHECK %v", got)
		}
	})
}

// All files of the repository must reach the build. Otherwise the version of the binary says that the tree had changes.
func TestDockerignoreHidesNothingThatGitKnows(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(top + ".dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = top
	files, err := cmd.Output()
	if err != nil {
		require(t, "git ls-files: %v", err)
	}
	for pattern := range strings.Lines(string(text)) {
		if pattern = strings.TrimSpace(pattern); strings.HasPrefix(pattern, "#") {
			continue
		}
		base, anywhere := strings.CutPrefix(pattern, "**/")
		for file := range strings.Lines(string(files)) {
			name := strings.TrimSpace(file)
			if anywhere {
				name = path.Base(name)
			}
			if hidden, err := path.Match(strings.Trim(base, "/"), name); err != nil || hidden {
				t.Errorf("%s hides %s, error %v", pattern, name, err)
			}
		}
	}
}

// require skips a test that this machine cannot run. With KEYHOOK_TEST_REQUIRE it fails instead.
func require(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func TestCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(top + ".github/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Ports       []string
			User        string
			ReadOnly    bool `yaml:"read_only"`
			Tmpfs       []string
			Volumes     []string
			CapDrop     []string      `yaml:"cap_drop"`
			SecurityOpt []string      `yaml:"security_opt"`
			MemLimit    string        `yaml:"mem_limit"`
			PidsLimit   int           `yaml:"pids_limit"`
			StopSignal  string        `yaml:"stop_signal"`
			StopGrace   time.Duration `yaml:"stop_grace_period"`
			Environment map[string]string
			Privileged  bool
			CapAdd      []string `yaml:"cap_add"`
			NetworkMode string   `yaml:"network_mode"`
			Healthcheck struct{ Test []string }
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s, found := file.Services["keyhook"]
	if !found || len(file.Services) != 1 {
		t.Fatalf("services %v", file.Services)
	}
	if !s.ReadOnly || s.User != "65532:65532" || s.Privileged || len(s.CapAdd) > 0 || s.NetworkMode != "" ||
		!slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("it may do more than it needs: %+v", s)
	}
	if s.MemLimit != "256m" || s.PidsLimit == 0 || len(s.Tmpfs) != 1 || !strings.HasPrefix(s.Tmpfs[0], "/tmp:size=") {
		t.Errorf("it may take more than it needs: %+v", s)
	}
	if s.StopGrace != 45*time.Second || s.StopSignal != "SIGTERM" {
		t.Errorf("it is stopped by %s within %s", s.StopSignal, s.StopGrace)
	}
	volume, target, _ := strings.Cut(s.Volumes[0], ":")
	if _, named := file.Volumes[volume]; len(s.Volumes) != 1 || !named || target != "/data" {
		t.Errorf("volumes %v of %v", s.Volumes, file.Volumes)
	}
	if strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":") || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") {
		t.Errorf("image %s, ports %v", s.Image, s.Ports)
	}
	var inDockerfile []string
	_, command, _ := strings.Cut(argumentsOf(readDockerfile(t), "HEALTHCHECK")[0], "CMD ")
	if err := json.Unmarshal([]byte(command), &inDockerfile); err != nil || !slices.Equal(s.Healthcheck.Test, append([]string{"CMD"}, inDockerfile...)) {
		t.Errorf("healthcheck %v, in the Dockerfile %v, error %v", s.Healthcheck.Test, inDockerfile, err)
	}
}
