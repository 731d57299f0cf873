package slurm

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/text"
)

// column is a field with a width, or a text between fields.
type column struct {
	field *field // nil: before is all
	width int    // 0: as wide as it is
	right bool
	text  string
}

type columns []column

// formatColumns reads "%.18i %.9P": a dot for the right side, a width, a letter.
func formatColumns(format string, fields []field) (list columns, err error) {
	for {
		before, rest, found := strings.Cut(format, "%")
		if before != "" {
			list = append(list, column{text: before})
		}
		if !found {
			return list, nil
		}
		c := column{}
		rest, c.right = strings.CutPrefix(rest, ".")
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		if digits != "" {
			c.width, _ = text.Digits(digits, 4)
			rest = rest[len(digits):]
		}
		if rest == "" {
			return nil, fmt.Errorf("--format: expected a letter after %%, found none")
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.letter == rest[0] })
		if i < 0 {
			return nil, fmt.Errorf("--format: expected one of %s after %%, found %s", letters(fields), text.Found(rest[:1]))
		}
		c.field = &fields[i]
		list, format = append(list, c), rest[1:]
	}
}

func letters(fields []field) string {
	var list []string
	for _, f := range fields {
		list = append(list, "%"+string(f.letter))
	}
	return strings.Join(list, " ")
}

// usualWidth is that of a column by name.
const usualWidth = 20

// namedColumns reads "JobID,Name:30,State".
func namedColumns(list string, fields []field) (columns columns, err error) {
	for part := range strings.SplitSeq(list, ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(part), ":")
		c := column{width: usualWidth}
		if sized {
			var ok bool
			right := ""
			width, right, _ = strings.Cut(strings.TrimPrefix(width, "-"), ".")
			if c.width, ok = text.Digits(width, 4); !ok || right != "" {
				return nil, text.Mismatch(part, "NAME or NAME:WIDTH")
			}
		}
		i := slices.IndexFunc(fields, func(f field) bool { return slices.Contains(strings.Fields(f.names), strings.ToLower(name)) })
		if i < 0 {
			return nil, fmt.Errorf("--Format: unknown name %s", text.Found(name))
		}
		c.field = &fields[i]
		columns = append(columns, c)
	}
	return columns, nil
}

// line writes one line, each value cut and filled to its width as Slurm does it.
func (list columns) line(value func(*field) string) string {
	var b strings.Builder
	for _, c := range list {
		if c.field == nil {
			b.WriteString(c.text)
			continue
		}
		word := value(c.field)
		if c.width > 0 {
			word = string([]rune(word)[:min(len([]rune(word)), c.width)])
			gap := strings.Repeat(" ", c.width-len([]rune(word)))
			if c.right {
				word = gap + word
			} else {
				word += gap
			}
		}
		b.WriteString(word)
	}
	return b.String()
}

// rule is the line under the titles.
func (list columns) rule() string {
	return list.line(func(f *field) string { return strings.Repeat("-", 200) })
}
