package main

import (
	"net/url"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Note is one parsed file. It does not change.
type Note struct {
	Path     string // from the root of the vault, with slashes
	Title    string // the first heading, else the path
	Text     string // as in the file
	Headings []Heading
	Links    []Link
}

// Heading is one line of a note's outline.
type Heading struct {
	Level int    `json:"level"`
	Text  string `json:"text"`
}

// Link is a link to another note, as written.
type Link struct {
	Target string // without fragment and query
	Wiki   bool   // [[Target]]
}

var markdown = goldmark.New(goldmark.WithParserOptions(
	// Before the parser of ordinary links, which has priority 200.
	parser.WithInlineParsers(util.Prioritized(wikiParser{}, 199)),
))

// parse reads one file. Links in code are no links, which is why this needs a Markdown parser.
func parse(file string, raw []byte) *Note {
	note := &Note{Path: file, Title: file, Text: string(raw)}
	doc := markdown.Parser().Parse(text.NewReader(raw))
	// The walk only fails if the visitor does.
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			h := Heading{n.Level, plainText(n, raw)}
			if len(note.Headings) == 0 && h.Text != "" {
				note.Title = h.Text
			}
			note.Headings = append(note.Headings, h)
		case *ast.Link:
			note.addLink(string(n.Destination))
		case *wikiLink:
			note.Links = append(note.Links, Link{n.target, true})
		}
		return ast.WalkContinue, nil
	})
	return note
}

// addLink keeps links that can lead to a note: no scheme, no host, some path.
func (n *Note) addLink(destination string) {
	u, err := url.Parse(destination)
	if err == nil && u.Scheme == "" && u.Host == "" && u.Path != "" {
		n.Links = append(n.Links, Link{Target: u.Path})
	}
}

// plainText is the text under a node, without markup.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	// The walk only fails if the visitor does.
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// wikiLink is [[target]], [[target#part]] or [[target|label]].
type wikiLink struct {
	ast.BaseInline
	target string
}

var kindWikiLink = ast.NewNodeKind("WikiLink")

func (*wikiLink) Kind() ast.NodeKind { return kindWikiLink }

func (l *wikiLink) Dump(source []byte, level int) {
	ast.DumpHelper(l, source, level, map[string]string{"target": l.target}, nil)
}

// wikiParser finds wiki links. Anything else that begins with "[" is left to the other parsers.
type wikiParser struct{}

func (wikiParser) Trigger() []byte { return []byte{'['} }

func (wikiParser) Parse(_ ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, segment := block.PeekLine()
	inside, ok := strings.CutPrefix(string(line), "[[")
	if !ok {
		return nil
	}
	inside, _, ok = strings.Cut(inside, "]]")
	target, label, labelled := strings.Cut(inside, "|")
	target, _, _ = strings.Cut(target, "#")
	target = strings.TrimSpace(target)
	if !ok || target == "" || strings.Contains(inside, "[") {
		return nil
	}
	block.Advance(len("[[") + len(inside) + len("]]"))
	link := &wikiLink{target: target}
	shown := segment.WithStart(segment.Start + len("[["))
	if labelled {
		shown = shown.WithStart(shown.Start + len(inside) - len(label))
	}
	link.AppendChild(link, ast.NewTextSegment(shown.WithStop(segment.Start+len("[[")+len(inside))))
	return link
}
