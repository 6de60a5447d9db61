package browser

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// update writes the pictures of README: go test ./server/e2e/browser -run TestPictures -update
var update = flag.Bool("update", false, "write the pictures of README")

// maxPicture is the most bytes of a picture of README, so that the page opens fast.
const maxPicture = 150 << 10

// TestPictures makes the pictures of README from the data of `keyhook demo --keep`.
func TestPictures(t *testing.T) {
	t.Parallel()
	c := keepDemo(t)
	p := open(t, c.base)
	p.signIn(strings.TrimPrefix(c.authorization, "Bearer "))
	p.show(light, size{1200, 700})
	p.visit("/console/?range=7d")
	p.in("table", "Problems").expect("Brightwater Logistics")
	p.in("table", "Problems").expect("Tallgrass Books")
	p.picture("overview")

	var found struct{ Data []struct{ ID string } }
	c.must(t, "GET", "/api/v1/organizations/?search=Brightwater", nil, &found)
	c.organization = found.Data[0].ID
	c.must(t, "GET", "/api/v1/events/?type=order.shipped&state=pending&limit=1", nil, &found)
	if len(found.Data) != 1 {
		t.Fatal("no event of the demo waits")
	}
	p.visit(eventPage(found.Data[0].ID) + "?org=" + c.organization)
	p.expect("brightwater/warehouse")
	p.expect("brightwater/service")
	p.picture("event")

	p.visit("/console/parts/") // only a server with --dev has it
	p.expect("There is no such page")
}

// keepDemo runs the command until the test ends, and returns a client that acts as the operator.
func keepDemo(t *testing.T) client {
	t.Helper()
	cmd := exec.Command(program(), "demo", "--keep")
	dir := t.TempDir()
	cmd.Env = []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	out := func() string {
		text, _ := os.ReadFile(log.Name()) // a failure shows as an empty log
		return string(text)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // as Ctrl C in a terminal; it may have ended by itself
		if err := cmd.Wait(); err != nil {
			t.Errorf("demo --keep: %v\n%s", err, out())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, error %v", left, err)
		}
	})
	said := regexp.MustCompile(`Console:  (http://\S+)/console/\nSign in:  (\S+)\nStop: `)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		if found := said.FindStringSubmatch(out()); found != nil {
			return client{base: found[1], authorization: "Bearer " + found[2]}
		}
		if time.Now().After(deadline) {
			t.Fatalf("demo --keep has not started after a minute:\n%s", out())
		}
	}
}

// picture writes a picture of README, if the test was told so, and checks its size.
func (p *page) picture(name string) {
	p.tb.Helper()
	image, err := os.ReadFile(p.photograph("picture-" + name))
	if err != nil {
		p.fatalf("the picture %s: %v", name, err)
	}
	if len(image) > maxPicture {
		p.errorf("the picture %s has %d bytes, and at most %d are allowed", name, len(image), maxPicture)
	}
	if *update {
		if err := os.WriteFile(filepath.Join("../../../.github", "console-"+name+".png"), image, 0o644); err != nil { //nolint:gosec // README shows it
			p.fatalf("%v", err)
		}
	}
}
