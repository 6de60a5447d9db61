package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// The colours and the sizes in which each page is looked at.
const (
	light  = "light"
	dark   = "dark"
	forced = "forced" // the system has few colours of its own, which the page must use
)

type size struct{ width, height int64 }

var (
	desktop = size{1440, 900}
	phone   = size{360, 740}
)

// screenshots returns the directory for screenshots, which is outside of the repository; empty: none are wanted.
func screenshots() string { return os.Getenv("KEYHOOK_TEST_SCREENSHOTS") }

// look does everything that each state of each page must pass: axe in light and dark, no horizontal scroll on a phone, and
// screenshots under a name such as "subscriptions-empty". It leaves the page light and on a desktop.
func (p *page) look(name string) {
	p.tb.Helper()
	for _, colours := range []string{light, dark} {
		p.show(colours, desktop)
		p.axe(colours)
		p.save(name + "-" + colours)
	}
	p.show(light, phone)
	p.fits()
	p.save(name + "-phone")
	p.show(light, desktop)
	p.check()
}

// save takes a screenshot, if screenshots are wanted.
func (p *page) save(name string) {
	p.tb.Helper()
	if screenshots() != "" {
		p.tb.Log(p.photograph(name))
	}
}

// show sets the colours and the size of the page, and waits until the page follows. Nothing moves.
func (p *page) show(colours string, s size) {
	p.tb.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if colours == forced {
		features[0] = &emulation.MediaFeature{Name: "forced-colors", Value: "active"}
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	if err == nil {
		_, err = chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: s.width, Height: s.height, DeviceScaleFactor: 1,
		})
	}
	if err != nil {
		p.fatalf("show %s at %d × %d: %v", colours, s.width, s.height, err)
	}
	p.idle()
}

// fits checks that the page does not scroll sideways.
func (p *page) fits() {
	p.tb.Helper()
	wide := evaluate[[]string](p, `(() => {
		const page = document.documentElement, width = page.clientWidth;
		if (page.scrollWidth <= width) return [];
		const scrolls = e => e !== document.body && e !== page && getComputedStyle(e).overflowX !== "visible";
		const inside = e => { for (let up = e.parentElement; up; up = up.parentElement) if (scrolls(up)) return true; return false; };
		const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 0.5 && !inside(e));
		return ["the page is " + page.scrollWidth + " px wide of " + width,
			...wide.slice(-5).map(e => Math.round(e.getBoundingClientRect().right) + " px: " + e.outerHTML.slice(0, 200))];
	})()`)
	if len(wide) > 0 {
		p.errorf("the page scrolls sideways:\n  %s", strings.Join(wide, "\n  "))
	}
}

// axe reports what axe-core finds: the rules of WCAG 2.2 A and AA, and its best practices.
func (p *page) axe(colours string) {
	p.tb.Helper()
	source, err := axeSource()
	require(p.tb, err)
	if !evaluate[bool](p, "typeof axe === 'object'") {
		evaluate[any](p, source+"\n;undefined")
	}
	rules := "" // all
	if colours == dark {
		rules = `, runOnly: ["color-contrast", "link-in-text-block"]` // the page is the same but for its colours
	}
	found := evaluate[[]string](p, `axe.run(document, {preload: false, resultTypes: ["violations"]`+rules+`}).then(result =>
		result.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map(n =>
			"    " + n.html.slice(0, 300) + "\n    " + n.failureSummary.replaceAll("\n", " ")).join("\n")))`)
	if len(found) > 0 {
		p.errorf("axe, in %s:\n  %s", colours, strings.Join(found, "\n  "))
	}
}

// The version of axe-core and the digest of its file axe.min.js.
const (
	axeVersion = "4.14.1"
	axeDigest  = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axeSource returns the text of axe.min.js: from KEYHOOK_TEST_AXE, from the cache directory of the user, or from npm.
var axeSource = sync.OnceValues(func() (string, error) {
	path := os.Getenv("KEYHOOK_TEST_AXE")
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(cache, "keyhook", "axe-core-"+axeVersion, "axe.min.js")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := fetchAxe(path); err != nil {
				return "", fmt.Errorf("axe-core %s is %w: apt-get install npm, which fetches it once, or name axe.min.js in KEYHOOK_TEST_AXE (%v)", axeVersion, errMissing, err)
			}
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("axe-core is %w: %v", errMissing, err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != axeDigest {
		return "", fmt.Errorf("%s is not axe.min.js of axe-core %s: remove it", path, axeVersion)
	}
	return string(text), nil
})

// fetchAxe gets the package from npm, and saves its file axe.min.js.
func fetchAxe(to string) error {
	dir, err := os.MkdirTemp("", "keyhook-axe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dir, "axe-core@"+axeVersion).CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, out)
	}
	archive, err := os.ReadFile(filepath.Join(dir, "axe-core-"+axeVersion+".tgz"))
	if err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		file, err := files.Next()
		if err != nil {
			return fmt.Errorf("no axe.min.js in the package: %w", err)
		}
		if file.Name != "package/axe.min.js" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to+".new", text, 0o600); err != nil {
			return err
		}
		return os.Rename(to+".new", to) // another test run sees no half file
	}
}
