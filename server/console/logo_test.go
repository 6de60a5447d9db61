package console

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadLogo(t *testing.T) {
	t.Parallel()
	const png, svg = "\x89PNG\r\n\x1a\n", `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>`
	for name, tt := range map[string]struct{ text, says string }{
		"an SVG":                       {svg, ""},
		"a PNG":                        {png + "rest", ""},
		"the largest":                  {svg + strings.Repeat(" ", 64<<10-len(svg)), ""},
		"a larger one":                 {svg + strings.Repeat(" ", 64<<10-len(svg)+1), "has more than 64 KiB"},
		"a JPEG":                       {"\xff\xd8\xff\xe0JFIF", "neither SVG nor PNG"},
		"an empty file":                {"", "neither SVG nor PNG"},
		"a page that has an SVG later": {strings.Repeat("x", 1024) + svg, "neither SVG nor PNG"},
	} {
		file := filepath.Join(t.TempDir(), "logo")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadLogo(file)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) || err == nil && string(got) != tt.text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if got, err := ReadLogo(""); got != nil || err != nil {
		t.Errorf("no file: %q, %v", got, err)
	}
	if _, err := ReadLogo(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
