package jobfile

import (
	"errors"
	"strconv"
	"strings"

	"berth/internal/text"
)

// argumentsField is the index of the arguments. Everything after them is the
// last field, commas included.
const argumentsField = 3

// cutFields splits a line at its commas into at most five fields, or six with an
// execution type before the arguments. In a field
// in double quotes, "" is one quote. The arguments may hold shell quotes;
// commas inside them do not split either.
func cutFields(line string) ([]string, error) {
	var fields []string
	extra := 0
	for {
		field, rest, more, err := cutField(line, len(fields)-extra)
		if err != nil {
			return nil, err
		}
		if _, typed := processes(field); typed && len(fields) == argumentsField {
			extra = 1
		}
		fields = append(fields, field)
		if !more {
			return fields, nil
		}
		line = rest
	}
}

// processes is the number of processes of an execution type: 0 for python, N for
// torchrun-Ngpu. No other field is one.
func processes(field string) (n int, ok bool) {
	switch field {
	case "python":
		return 0, true
	case "torchrun":
		return 1, true
	}
	digits, found := strings.CutPrefix(field, "torchrun-")
	digits, ends := strings.CutSuffix(digits, "gpu")
	n, err := strconv.Atoi(digits)
	if !found || !ends || err != nil || n < 1 || n > maxGPUs {
		return 0, false
	}
	return n, true
}

// cutField takes the first field. more is set if another follows.
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

// quotedField takes a field that is quoted as a whole: a comma or the end of
// the line follows its closing quote, unlike in `"--name" x`.
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

// argumentsEnd is the index of the first comma outside shell quotes, or -1.
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
		return 0, errors.New("arguments: " + text.ErrQuote.Error())
	}
	return -1, nil
}

// FormatCSV is the line that ParseCSV reads back as the same job, if the job
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

// formatField quotes a field only if it would be misread without quotes. One
// that starts with a quote might otherwise end in a later field.
func formatField(field string, at int) string {
	back, rest, more, err := cutField(field+",", at)
	if err == nil && more && rest == "" && back == field && !strings.HasPrefix(field, `"`) {
		return field
	}
	return `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
}
