package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/chromedp/chromedp"
)

// chromium is the one browser process of all tests. It starts with the first page.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium-headless-shell") // without the windows of chromium, it takes three fifths of the processor time
	if err != nil {
		path, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, fmt.Errorf("Chromium is %w: apt-get install chromium-headless-shell fonts-dejavu-core (%v)", errMissing, err) //nolint:staticcheck // a name
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.UserDataDir(filepath.Join(temporary, "profile")), chromedp.Env("TMPDIR="+temporary), // Chromium leaves files behind
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"), // nothing leaves this machine
		chromedp.Flag("lang", "en-US"),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox needs another user than root
	}
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	started = ctx
	if _, err := chromedp.Run(ctx, chromedp.Title()); err != nil { // this starts the process
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return ctx, nil
})

var started context.Context // of the browser; nil before the first page

func stopChromium() {
	if started != nil {
		if err := chromedp.Cancel(started); err != nil {
			fmt.Fprintln(os.Stderr, "stop Chromium:", err)
		}
	}
}
