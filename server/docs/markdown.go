package docs

import (
	"bytes"
	"html/template"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// toHTML renders Markdown of our own, and returns its sections for the search. A link to another document, "name.md", or to an
// attachment becomes a link to its page.
func (s *Site) toHTML(source []byte) (template.HTML, []section, error) {
	tree := markdown.Parser().Parse(text.NewReader(source))
	sections := []section{{}}
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering {
				anchor, _ := n.AttributeString("id")
				id, _ := anchor.([]byte)
				sections = append(sections, section{Anchor: string(id), Title: plain(n, source), level: n.Level})
			}
		case *ast.Link:
			if entering {
				n.Destination = []byte(s.target(string(n.Destination)))
			}
		}
		if n.Type() == ast.TypeBlock && entering && n.Kind() != ast.KindHeading {
			last := &sections[len(sections)-1]
			last.text += plainBlock(n, source)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, tree); err != nil {
		return "", nil, err
	}
	// Long lines of code scroll, so the keyboard must reach them. In the text of a document, < is escaped.
	framed := strings.NewReplacer("<pre>", `<div class="code"><pre tabindex="0">`, "</pre>", "</pre></div>")
	return template.HTML(framed.Replace(out.String())), sections[1:], nil // our own text
}

// target returns where a link leads when the documents are pages.
func (s *Site) target(destination string) string {
	file, fragment, hasFragment := strings.Cut(destination, "#")
	if _, isAttachment := attachments[file]; isAttachment {
		return s.options.Base + Path + path.Base(file)
	}
	if strings.HasPrefix(destination, Path) { // in the description of the API
		return s.options.Base + destination
	}
	name, isDocument := strings.CutSuffix(file, ".md")
	if !isDocument || strings.Contains(name, "/") {
		return destination
	}
	if hasFragment {
		fragment = "#" + fragment
	}
	return s.options.Base + Path + name + "/" + fragment
}

// plain returns the text in a node, without its markup.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function below returns no error
		if t, isText := n.(*ast.Text); isText && entering {
			out.Write(t.Segment.Value(source))
			if t.SoftLineBreak() || t.HardLineBreak() {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// plainBlock returns the text of a block that has no other block: a paragraph, the cell of a table, code.
func plainBlock(n ast.Node, source []byte) string {
	if n.Kind() == ast.KindCodeBlock || n.Kind() == ast.KindFencedCodeBlock {
		return string(n.Lines().Value(source)) + "\n"
	}
	if first := n.FirstChild(); first == nil || first.Type() != ast.TypeInline {
		return ""
	}
	return plain(n, source) + " "
}
