package jobfile

import (
	"errors"
	"strconv"
	"strings"
)

// argumentsField is where the arguments stand. What follows them is the last
// field, commas and all.
const argumentsField = 3

// cutFields splits a line at its commas, into five fields at most. A field may
// stand in double quotes, where two of them are one. In the arguments, which a
// shell's quotes may be part of, commas inside of those do not split either.
func cutFields(line string) ([]string, error) {
	var fields []string
	for {
		field, rest, more, err := cutField(line, len(fields))
		if err != nil {
			return nil, err
		}
		fields = append(fields, field)
		if !more {
			return fields, nil
		}
		line = rest
	}
}

// cutField takes the field that stands first. more says that another follows.
func cutField(line string, at int) (field, rest string, more bool, err error) {
	if field, rest, more, ok := quotedField(line); ok {
		return field, rest, more, nil
	}
	if at > argumentsField {
		return strings.Trim(line, " \t"), "", false, nil
	}
	end := strings.IndexByte(line, ',')
	if at == argumentsField {
		if end, err = argumentsEnd(line); err != nil {
			return "", "", false, err
		}
	}
	if end < 0 {
		return strings.Trim(line, " \t"), "", false, nil
	}
	return strings.Trim(line[:end], " \t"), line[end+1:], true, nil
}

// quotedField takes a field that is quoted as a whole: its closing quote has a
// comma or the end of the line after it. `"--name" x` is no such field.
func quotedField(line string) (field, rest string, more, ok bool) {
	text, found := strings.CutPrefix(strings.TrimLeft(line, " \t"), `"`)
	if !found {
		return "", "", false, false
	}
	var b strings.Builder
	for {
		part, after, closed := strings.Cut(text, `"`)
		if !closed {
			return "", "", false, false
		}
		b.WriteString(part)
		if text, found = strings.CutPrefix(after, `"`); found {
			b.WriteByte('"')
			continue
		}
		text = strings.TrimLeft(after, " \t")
		rest, more = strings.CutPrefix(text, ",")
		return b.String(), rest, more, more || text == ""
	}
}

// argumentsEnd is where the first comma stands that no quotes of a shell are
// around, or -1.
func argumentsEnd(line string) (int, error) {
	var quote byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote == 0 && c == ',':
			return i, nil
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == c && quote != 0:
			quote = 0
		case c == '\\' && quote != '\'':
			i++
		}
	}
	if quote != 0 {
		return 0, errors.New("arguments: " + errQuote.Error())
	}
	return -1, nil
}

// FormatCSV is the line that ParseCSV reads back as the same job, where the job
// passes Check.
func FormatCSV(j CSVJob) string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(j.Priority))
	for at, field := range []string{j.Script, j.Conda, j.Arguments} {
		b.WriteByte(',')
		b.WriteString(formatField(field, at+1))
	}
	b.WriteByte(',')
	for i, id := range j.Allow {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}

// formatField quotes a field only where it would be read as something else. One
// that starts with a quote could find its end in a later field.
func formatField(field string, at int) string {
	back, rest, more, err := cutField(field+",", at)
	if err == nil && more && rest == "" && back == field && !strings.HasPrefix(field, `"`) {
		return field
	}
	return `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
}
