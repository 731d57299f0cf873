package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// formatCSV is the format that is not a template.
const formatCSV = "csv"

// writeCSV writes a line of column names, and a line for each job.
func writeCSV(out io.Writer, rows []render.Row, shown []render.Column, now time.Time) error {
	w := csv.NewWriter(out)
	line := make([]string, len(shown))
	for i, c := range shown {
		line[i] = c.Name
	}
	err := w.Write(line)
	for i := range rows {
		for k, c := range shown {
			line[k] = csvText(c.Value(&rows[i].View, now))
		}
		err = errors.Join(err, w.Write(line))
	}
	w.Flush()
	return errors.Join(err, w.Error())
}

// parseFormat reads a template over the JSON of a job. It is tried on an empty job,
// so that a misspelt field is an error before anything is asked.
func parseFormat(written string) (*template.Template, error) {
	const hint = "berth help json lists the fields of a job"
	if !strings.Contains(written, "{{") {
		return nil, problem.Newf(problem.Invalid, hint, "--format: expected csv or a template such as '{{.id}} {{.name}}', found %q", written)
	}
	// In single quotes a shell passes these on as they are.
	written = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(written)
	t, err := template.New("--format").Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON}).Parse(written)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, hint, "--format: %s", strings.TrimPrefix(err.Error(), "template: --format:"))
	}
	fields, err := fieldsOf(&job.View{})
	if err != nil {
		return nil, err
	}
	if name := unknownField(t.Execute(io.Discard, fields)); name != "" {
		known := slices.Sorted(maps.Keys(fields))
		if near := text.DidYouMean(name, known); near != "" {
			return nil, problem.Newf(problem.Invalid, near, "--format: a job has no field %q; it has %s", name, strings.Join(known, ", "))
		}
		return nil, problem.Newf(problem.Invalid, hint, "--format: a job has no field %q; it has %s", name, strings.Join(known, ", "))
	}
	return t, nil
}

// unknownField is the field that a template names and a job does not have.
func unknownField(err error) string {
	if err == nil {
		return ""
	}
	_, after, found := strings.Cut(err.Error(), "map has no entry for key ")
	if !found {
		return ""
	}
	return strings.Trim(after, `"`)
}

func asJSON(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// writeFormat writes a line for each job.
func writeFormat(out io.Writer, rows []render.Row, t *template.Template) error {
	for i := range rows {
		fields, err := fieldsOf(&rows[i].View)
		if err != nil {
			return err
		}
		var line bytes.Buffer
		if err := t.Execute(&line, fields); err != nil {
			return problem.Newf(problem.Invalid, "berth help json lists the fields of a job", "--format: %s", strings.TrimPrefix(err.Error(), "template: --format:"))
		}
		line.WriteByte('\n')
		if _, err := out.Write(line.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf is a job as its JSON has it, for a template: a null is empty, a list is
// written with commas.
func fieldsOf(v *job.View) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	fields := map[string]any{}
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	for key, value := range fields {
		fields[key] = forTemplate(value)
	}
	return fields, nil
}

// series is a list of values in a template.
type series []any

func (s series) String() string {
	words := make([]string, len(s))
	for i, value := range s {
		words[i] = fmt.Sprint(value)
	}
	return strings.Join(words, ",")
}

func forTemplate(value any) any {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return text.Line(value)
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		number, _ := value.Float64()
		return number
	case []any:
		list := make(series, len(value))
		for i := range value {
			list[i] = forTemplate(value[i])
		}
		return list
	case map[string]any:
		for key := range value {
			value[key] = forTemplate(value[key])
		}
	}
	return value
}

// csvText keeps the lines of a value. Other control characters are replaced: what
// is in a file is shown on a terminal sooner or later.
func csvText(value string) string {
	lines := strings.Split(value, "\n")
	for i := range lines {
		lines[i] = text.Line(lines[i])
	}
	return text.CSVCell(strings.Join(lines, "\n"))
}
