// Package docs owns the documents for users and the reference of the API. The documents are Markdown files in the binary, which
// serves them as HTML, so they describe the running version and need no network. It does not know HTTP.
package docs

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.md *.html style.css docs.js keyhook.service monitoring
var files embed.FS

// Path is where the pages are served, below the path of the server.
const Path = "/docs/"

// Options say where the pages are, and what they show of the server.
type Options struct {
	Base        string // path of the server, without a slash at the end
	Console     string // path of the console; empty: there is none
	Brand       string // the name above each page
	URL         string // where callers reach the server, without a slash at the end
	Description []byte // the description of the API, in JSON
	Style       []byte // the tokens of style.css
	Script      []byte // what runs before a page is painted
}

// Page is one file as it is served.
type Page struct {
	Name      string // the last part of its path; empty is the list of all documents
	MediaType string
	Body      []byte
}

// Site has all pages. Use Render.
type Site struct {
	Pages []Page

	options  Options
	layout   *template.Template
	entries  []entry
	sections []section
}

// entry is a document in the list of all documents.
type entry struct {
	Name, Title, Summary string
}

// attachments are files that pages use, or that documents link to, with their media types.
var attachments = map[string]string{
	"style.css":                 "text/css; charset=utf-8",
	"docs.js":                   "text/javascript; charset=utf-8",
	"keyhook.service":           "text/plain; charset=utf-8",
	"monitoring/alerts.yaml":    "application/yaml",
	"monitoring/dashboard.json": "application/json",
}

// The names of the pages with all operations of the API, and with the objects in its requests and responses.
const (
	referenceName = "api"
	objectsName   = "objects"
)

// HTML is the media type of a page.
const HTML = "text/html; charset=utf-8"

// Render returns all pages: the list of documents, each document, the reference of the API, and the files that they use. An error is
// a defect of the embedded files or of the description.
func Render(o Options) (*Site, error) {
	s := &Site{options: o}
	var err error
	if s.layout, err = template.New("").Funcs(template.FuncMap{"md": s.md, "join": strings.Join, "object": s.object}).ParseFS(files, "*.html"); err != nil {
		return nil, err
	}
	heads := map[string][]byte{"style.css": o.Style, "docs.js": o.Script}
	for file, mediaType := range attachments {
		body, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s.Pages = append(s.Pages, Page{path.Base(file), mediaType, append(bytes.Clone(heads[file]), body...)})
	}
	api, err := readReference(o.Description, o.URL)
	if err != nil {
		return nil, fmt.Errorf("read the description of the API: %w", err)
	}
	documents, err := s.readDocuments()
	if err != nil {
		return nil, err
	}
	s.entries = append(s.entries, entry{referenceName, "API reference", "Every operation of the API: permission, fields, refusals, and a command to paste."},
		entry{objectsName, "API objects", "The fields of all objects in requests and responses."})
	if err := s.addReference(api); err != nil {
		return nil, fmt.Errorf("render the reference of the API: %w", err)
	}
	for i, section := range s.sections {
		s.sections[i].lower = [2]string{strings.ToLower(section.Title), strings.ToLower(section.text)}
	}
	for _, v := range append(documents, view{Title: "Documents", template: "list"}) {
		if err := s.add(v); err != nil {
			return nil, fmt.Errorf("render %s: %w", cmp.Or(v.Name, "the list of documents"), err)
		}
	}
	return s, nil
}

// readDocuments reads the Markdown files. The pages that show them wait until all entries are known.
func (s *Site) readDocuments() (documents []view, err error) {
	names, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		source, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		about := summarize(strings.TrimSuffix(file, ".md"), string(source))
		body, sections, err := s.toHTML(source)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", file, err)
		}
		v := view{Name: about.Name, Title: about.Title, Body: body}
		for _, found := range sections {
			found.Page, found.PageTitle = about.Name, about.Title
			s.sections = append(s.sections, found)
			if found.level == 2 {
				v.Sections = append(v.Sections, link{found.Anchor, found.Title})
			}
		}
		documents, s.entries = append(documents, v), append(s.entries, about)
	}
	return documents, nil
}

// view is what page.html shows.
type view struct {
	template string // of the body; empty: Body is there already

	Base, Root, Console, Brand string
	Name, Title, Query         string
	Sections                   []link // of this page
	Entries                    []entry
	Body                       template.HTML
	Results                    []result
	API                        *reference
}

type link struct{ Anchor, Title string }

func (s *Site) add(v view) error {
	body, err := s.fill(v)
	s.Pages = append(s.Pages, Page{v.Name, HTML, body})
	return err
}

// fill returns a page: its body in the frame of all pages.
func (s *Site) fill(v view) ([]byte, error) {
	v.Base, v.Root, v.Console, v.Brand, v.Entries = s.options.Base, s.options.Base+Path, s.options.Console, s.options.Brand, s.entries
	var page bytes.Buffer
	if v.template != "" {
		if err := s.layout.ExecuteTemplate(&page, v.template+".html", v); err != nil {
			return nil, err
		}
		v.Body = template.HTML(page.String()) // a template has escaped it
		page.Reset()
	}
	err := s.layout.ExecuteTemplate(&page, "page.html", v)
	return page.Bytes(), err
}

// object returns where the object of this name is described.
func (s *Site) object(name string) string { return s.options.Base + Path + objectsName + "/#" + name }

func (s *Site) md(text string) (template.HTML, error) {
	body, _, err := s.toHTML([]byte(text))
	return body, err
}

// summarize takes the title from the first heading, and the summary from the first sentence below it.
func summarize(name, source string) entry {
	head, rest, _ := strings.Cut(source, "\n")
	paragraph, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
	sentence, _, _ := strings.Cut(strings.ReplaceAll(paragraph, "\n", " ")+" ", ". ")
	return entry{name, strings.TrimPrefix(head, "# "), strings.TrimSuffix(sentence, ".") + "."}
}
