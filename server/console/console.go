// Package console owns the web console: its static files, their paths, media types and headers, and the page that loads them.
// It does not know the API: the scripts in the browser call it.
package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// Path is where the console is served, below the path of the server.
const Path = "/console/"

// URL returns the URL of the console. base is the URL of the server.
func URL(base string) string { return strings.TrimSuffix(base, "/") + Path }

// PageURL returns the URL of the page of a subscription, or of the API keys if there is none, where an operator acts in an
// organization. base is the URL of the server.
func PageURL(base, organization, subscription string) string {
	page := "keys/"
	if subscription != "" {
		page = "subscriptions/" + subscription + "/"
	}
	return URL(base) + page + "?org=" + organization
}

// SignInURL returns the URL of the console that signs in with the secret of a link. base is the URL of the server. The secret is in
// the fragment, which browsers do not send: no log has it, and no program that looks at the links in an e-mail uses it up.
func SignInURL(base, secret string) string { return URL(base) + "#link=" + secret }

// The defaults of Options.
const (
	DefaultName   = "Keyhook"
	DefaultAccent = "#3b5bdb"
)

// Options configure the console.
type Options struct {
	Base           string   // path of the server, without a slash at the end
	Name           string   // shown instead of the name of the product; empty means DefaultName
	Accent         string   // "#rrggbb"; empty means DefaultAccent
	Logo           []byte   // SVG or PNG; empty: the mark of Keyhook
	PortalPages    []string // of PortalPages: what the session of a portal link shows; empty: all
	FrameAncestors []string // origins of pages that may show the console in a frame; empty: none
	HeaderPrefix   string   // of the headers in deliveries, without the hyphen that follows it
	OIDC           bool     // people can sign in with the identity provider
	Parts          bool     // for developers of the console: the page with all components
}

// PortalPages lists the pages that Options.PortalPages may have.
func PortalPages() []string { return []string{"subscriptions", "events", "keys", "audit"} }

const maxLogo = 64 << 10 // bytes

// ReadLogo reads a file for Options.Logo. An empty name is no logo.
func ReadLogo(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	logo, err := io.ReadAll(io.LimitReader(f, maxLogo+1))
	switch {
	case err != nil:
		return nil, err
	case len(logo) > maxLogo:
		return nil, errors.New("the logo has more than 64 KiB")
	case logoName(logo) == "":
		return nil, errors.New("the logo is neither SVG nor PNG")
	}
	return logo, nil
}

// logoName returns the name under which the logo is served, by its content; empty if it is no image that a page can show.
func logoName(logo []byte) string {
	switch {
	case bytes.HasPrefix(logo, []byte("\x89PNG\r\n\x1a\n")):
		return "logo.png"
	case bytes.Contains(logo[:min(len(logo), 1024)], []byte("<svg")):
		return "logo.svg"
	}
	return ""
}

// Tokens returns the style sheet of the tokens: colours, spaces, sizes. An empty accent means DefaultAccent.
func Tokens(accent string) ([]byte, error) {
	theme, err := Theme(cmp.Or(accent, DefaultAccent))
	if err != nil {
		return nil, err
	}
	tokens, err := static.ReadFile("static/tokens.css")
	return append(tokens, theme...), err
}

// Colours returns the script that applies the light or dark colours that somebody chose, before a page is painted.
func Colours() ([]byte, error) { return static.ReadFile("static/colours.js") }

// File is one response. Its fields must not be changed.
type File struct {
	Header [][2]string // except Content-Type
	Type   string
	Body   []byte
	Tag    string        // for callers who have the body already; weak, because the body in gzip has it too (RFC 9110 section 8.8.3)
	Zipped func() []byte // the body in gzip, made at the first call; nil if that is not smaller
}

// Site has all files of the console.
type Site struct {
	assets string          // path of the assets below Path: "static/HASH/"
	files  map[string]File // by path below assets
	index  File
}

// New reads the embedded files and renders the page. An error is a wrong accent, or a defect of the embedded files.
func New(o Options) (*Site, error) {
	o.Name = cmp.Or(o.Name, DefaultName)
	tokens, err := Tokens(o.Accent)
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{"theme.css": tokens}
	if logo := logoName(o.Logo); logo != "" {
		contents[logo] = o.Logo
	}
	files, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == "index.html" || name == "tokens.css" {
			return err
		}
		contents[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of the console: %w", err)
	}
	s := &Site{assets: "static/" + checksum(contents) + "/", files: make(map[string]File, len(contents))}
	for name, body := range contents {
		header := [][2]string{{"Cache-Control", "public, max-age=31536000, immutable"}}
		if name == "logo.svg" { // a browser would run its scripts if somebody opened it as a page
			header = append(header, [2]string{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox"})
		}
		s.files[name] = NewFile(mediaTypes[path.Ext(name)], body, header...)
	}
	page, err := s.render(o)
	if err != nil {
		return nil, fmt.Errorf("render the page of the console: %w", err)
	}
	s.index = NewFile("text/html; charset=utf-8", page, pageHeader(o.FrameAncestors)...)
	return s, nil
}

// File returns the response to a request for a path below Path. Any path that is no file has the page, so every page of the
// console has a URL. Only below static/ there are unknown files.
func (s *Site) File(name string) (f File, found bool) {
	if asset, ok := strings.CutPrefix(name, s.assets); ok {
		f, found = s.files[asset]
		return f, found
	}
	return s.index, !strings.HasPrefix(name, "static/")
}

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".mjs": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".png": "image/png",
	".txt": "text/plain; charset=utf-8",
	".md":  "text/plain; charset=utf-8",
}

// checksum names the version of all files. One directory for all of them lets modules import each other by relative paths.
func checksum(contents map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		fmt.Fprintf(h, "%s\n%d\n", name, len(contents[name]))
		h.Write(contents[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// NewFile returns a file without a tag.
func NewFile(mediaType string, body []byte, header ...[2]string) File {
	zipped := func() []byte {
		var zipped bytes.Buffer
		w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is valid
		_, _ = w.Write(body)                                       // a buffer takes everything
		_ = w.Close()
		if zipped.Len() >= len(body) {
			return nil
		}
		return zipped.Bytes()
	}
	return File{Header: append(header, [2]string{"Vary", "Accept-Encoding"}), Type: mediaType, Body: body, Zipped: sync.OnceValue(zipped)}
}

// pageHeader has the headers of the page. The page may load its own files, call its own server, and nothing else.
func pageHeader(ancestors []string) [][2]string {
	from := "'none'"
	if len(ancestors) > 0 {
		from = "'self' " + strings.Join(ancestors, " ")
	}
	header := [][2]string{
		{"Cache-Control", "no-cache"},
		{"Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors " + from + "; object-src 'none'"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
	}
	if len(ancestors) == 0 {
		header = append(header, [2]string{"X-Frame-Options", "DENY"})
	}
	return header
}

// page is what index.html shows.
type page struct {
	Options
	Root, Assets string   // paths that end in a slash
	Logo         string   // below Assets; empty: the mark of Keyhook
	Portal       string   // the pages of the portal, separated by spaces
	Styles       []string // below Assets
	Modules      []string // below Assets; what every page needs, so that the browser loads all of it at once instead of one level of imports after another
}

func (s *Site) render(o Options) ([]byte, error) {
	layout, err := template.ParseFS(static, "static/index.html")
	if err != nil {
		return nil, err
	}
	root := o.Base + Path
	portal := o.PortalPages
	if len(portal) == 0 {
		portal = PortalPages()
	}
	view := page{Options: o, Root: root, Assets: root + s.assets, Logo: logoName(o.Logo), Portal: strings.Join(portal, " "), Styles: []string{"style.css", "shell.css", "lists.css", "ui.css", "theme.css", "forced.css"}, Modules: frame()}
	var out bytes.Buffer
	err = layout.Execute(&out, view)
	return out.Bytes(), err
}

// imported matches a static import or export in a module. A page is imported by import(), which the expression does not match.
var imported = regexp.MustCompile(`(?m)^(?:import|export)\b[\w\s{},*$]*["']([^"']+)["']`)

// modules returns a module and all that it imports statically, in the order of their names.
func modules(name string) []string {
	found := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if found[name] {
			return
		}
		found[name] = true
		body, _ := static.ReadFile("static/" + name) // a test sees that no imported module is missing
		for _, m := range imported.FindAllSubmatch(body, -1) {
			add(path.Join(path.Dir(name), string(m[1])))
		}
	}
	add(name)
	return slices.Sorted(maps.Keys(found))
}

// frame is what every page needs. The modules are embedded, so a process looks once.
var frame = sync.OnceValue(func() []string { return modules("app.js") })
