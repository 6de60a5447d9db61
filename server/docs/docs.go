// Package docs owns the documents for users. They are Markdown files in the binary, which serves them as HTML, so they describe
// the running version and need no network. It does not know HTTP.
package docs

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed *.md page.html style.css keyhook.service monitoring
var files embed.FS

// Page is one file as it is served.
type Page struct {
	Name      string // the last part of its path; empty is the list of all documents
	MediaType string
	Body      []byte
}

// entry is a document in the list of all documents.
type entry struct {
	Name, Title, Summary string
}

// attachments are files that documents link to, with their media types.
var attachments = map[string]string{
	"style.css":                 "text/css; charset=utf-8",
	"keyhook.service":           "text/plain; charset=utf-8",
	"monitoring/alerts.yaml":    "application/yaml",
	"monitoring/dashboard.json": "application/json",
}

// Render returns all pages: the list of documents, each document, and their attachments. Their links begin with root, the
// path under which the pages are served, which ends in a slash. An error is a defect of the embedded files.
func Render(root string) ([]Page, error) {
	layout, err := template.ParseFS(files, "page.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	var pages []Page
	for file, mediaType := range attachments {
		body, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pages = append(pages, Page{Name: path.Base(file), MediaType: mediaType, Body: body})
	}
	var entries []entry
	for _, file := range names {
		source, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(file, ".md")
		about := summarize(name, string(source))
		body, err := toHTML(source, root)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", file, err)
		}
		page, err := fill(layout, view{Root: root, Title: about.Title, Body: template.HTML(body)}) // our own text
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", file, err)
		}
		pages = append(pages, Page{name, "text/html; charset=utf-8", page})
		entries = append(entries, about)
	}
	list, err := fill(layout, view{Root: root, Title: "Documents", Entries: entries})
	if err != nil {
		return nil, fmt.Errorf("render the list of documents: %w", err)
	}
	return append(pages, Page{"", "text/html; charset=utf-8", list}), nil
}

// view is what page.html shows.
type view struct {
	Root, Title string
	Body        template.HTML
	Entries     []entry
}

func fill(layout *template.Template, v view) ([]byte, error) {
	var page bytes.Buffer
	err := layout.Execute(&page, v)
	return page.Bytes(), err
}

// summarize takes the title from the first heading, and the summary from the first sentence below it.
func summarize(name, source string) entry {
	head, rest, _ := strings.Cut(source, "\n")
	paragraph, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
	sentence, _, _ := strings.Cut(strings.ReplaceAll(paragraph, "\n", " ")+" ", ". ")
	return entry{name, strings.TrimPrefix(head, "# "), strings.TrimSuffix(sentence, ".") + "."}
}

// toHTML renders Markdown. A link to another document, "name.md", or to an attachment becomes a link to its page.
func toHTML(source []byte, root string) ([]byte, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	tree := markdown.Parser().Parse(text.NewReader(source))
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, isLink := n.(*ast.Link); isLink && entering {
			file, fragment, hasFragment := strings.Cut(string(link.Destination), "#")
			if _, isAttachment := attachments[file]; isAttachment {
				link.Destination = []byte(root + path.Base(file))
			}
			if name, isDocument := strings.CutSuffix(file, ".md"); isDocument && !strings.Contains(name, "/") {
				target := root + name + "/"
				if hasFragment {
					target += "#" + fragment
				}
				link.Destination = []byte(target)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = markdown.Renderer().Render(&out, source, tree)
	// Long lines of code scroll, so the keyboard must reach them. In the text of a document, < is escaped.
	return bytes.ReplaceAll(out.Bytes(), []byte("<pre>"), []byte(`<pre tabindex="0">`)), err
}
