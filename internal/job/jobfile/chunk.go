package jobfile

import "bytes"

// chunk is a part of a YAML file that can be read by itself: one entry of a
// list at the top, or else one document.
type chunk struct {
	text     []byte
	line     int // where it starts
	document int // anchors are known within one document only
}

// chunks splits a YAML file. A file of many jobs is nearly always a list, and
// once its first entry starts with "- ", only another entry can start like that
// at the same column. Reading entry by entry bounds the library's memory, which
// is some hundred bytes for every byte of text.
func chunks(content []byte, visit func(chunk) error) error {
	c := chunker{visit: visit, content: content, line: 1, chunkLine: 1}
	for c.at < len(content) {
		end := len(content)
		if newline := bytes.IndexByte(content[c.at:], '\n'); newline >= 0 {
			end = c.at + newline + 1
		}
		if err := c.next(bytes.TrimRight(content[c.at:end], "\r\n")); err != nil {
			return err
		}
		c.at = end
		c.line++
	}
	return c.cut()
}

type chunker struct {
	visit    func(chunk) error
	content  []byte
	at, line int // the line being looked at

	start, chunkLine int  // of the chunk being collected
	filled           bool // it holds more than comments and directives
	document         int
	ended            bool // after "...": another document follows

	listIndent int // of the document's entries; -1: not a list
	begun      bool
}

// next looks at one line, and cuts before it if a chunk starts there.
func (c *chunker) next(text []byte) error {
	if isMarker(text, "---") || c.ended {
		if err := c.cut(); err != nil {
			return err
		}
		c.document++
		c.begun, c.ended = false, false
	}
	switch indent := len(text) - len(bytes.TrimLeft(text, " ")); {
	case isMarker(text, "---"):
		if hasContent(text[3:]) {
			c.begun, c.filled, c.listIndent = true, true, -1
		}
	case isMarker(text, "..."):
		c.ended = true
	case !hasContent(text) || (text[0] == '%' && !c.begun):
	case !c.begun:
		c.begun, c.filled, c.listIndent = true, true, -1
		if isMarker(text[indent:], "-") {
			c.listIndent = indent
		}
	case indent == c.listIndent && isMarker(text[indent:], "-"):
		err := c.cut()
		c.filled = true
		return err
	}
	return nil
}

// cut ends the chunk before the line being looked at.
func (c *chunker) cut() error {
	done := chunk{text: c.content[c.start:c.at], line: c.chunkLine, document: c.document}
	filled := c.filled
	c.start, c.chunkLine, c.filled = c.at, c.line, false
	if !filled {
		return nil
	}
	return c.visit(done)
}

// isMarker reports whether a line is the marker, or the marker and more after
// white space.
func isMarker(text []byte, marker string) bool {
	rest, found := bytes.CutPrefix(text, []byte(marker))
	return found && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

// hasContent reports whether there is more than white space and a comment.
func hasContent(text []byte) bool {
	text = bytes.TrimLeft(text, " \t")
	return len(text) > 0 && text[0] != '#'
}
