package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

const braceHint = "write {{ and }} for braces of your own"

// piece is literal text and the placeholder that follows it.
type piece struct {
	literal string
	param   string // empty: none
	place   place  // where in a shell line
}

// words is one parsed text of a template.
type words []piece

// parse reads {name}, and {{ and }} for braces.
func parse(written string) (w words, err error) {
	var literal strings.Builder
	for written != "" {
		at := strings.IndexAny(written, "{}")
		if at < 0 {
			break
		}
		literal.WriteString(written[:at])
		brace, after := written[at], written[at+1:]
		switch {
		case after != "" && after[0] == brace:
			literal.WriteByte(brace)
			written = after[1:]
			continue
		case brace == '}':
			return nil, fmt.Errorf("expected {NAME}, found } without {; %s", braceHint)
		}
		end := strings.IndexByte(after, '}')
		if end < 0 || !isName(after[:end]) {
			if end < 0 {
				end = len(after) - 1
			}
			return nil, fmt.Errorf("expected {NAME}, found %s; %s", text.Found("{"+after[:end+1]), braceHint)
		}
		if strings.HasSuffix(literal.String(), "$") {
			return nil, fmt.Errorf("expected {%[1]s} or ${{%[1]s}}, found ${%[1]s}: the first is the parameter, the second the variable of the shell", after[:end])
		}
		w = append(w, piece{literal: literal.String(), param: after[:end]})
		literal.Reset()
		written = after[end+1:]
	}
	literal.WriteString(written)
	return append(w, piece{literal: literal.String()}), nil
}

// fill puts values into it.
func (w words) fill(values map[string]string, quoted bool) (string, error) {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(p.literal)
		if p.param == "" {
			continue
		}
		value := values[p.param]
		if quoted {
			var err error
			if value, err = p.place.quote(value); err != nil {
				return "", fmt.Errorf("{%s}: %w", p.param, err)
			}
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// Maker makes trials from a template.
type Maker struct {
	shell             words // nil: the command is separate words
	argv              []words
	name, dir, output words
	env               []words
	keys              []string
}

// NewMaker reads a template. Every placeholder must be one of the parameters, and
// every parameter must have a placeholder.
func NewMaker(t *job.Template, params []string) (*Maker, error) {
	m, used := &Maker{}, map[string]bool{}
	var problems []string
	read := func(what, written string) words {
		if written == "" {
			return nil
		}
		w, err := parse(written)
		if err != nil {
			problems = append(problems, what+": "+err.Error())
		}
		for _, p := range w {
			if p.param != "" && !slices.Contains(params, p.param) {
				hint := ""
				if near := text.Nearest(p.param, params); near != "" {
					hint = " (did you mean {" + near + "}?)"
				}
				problems = append(problems, fmt.Sprintf("%s: there is no parameter for {%s}%s; %s", what, p.param, hint, braceHint))
			}
			used[p.param] = true
		}
		return w
	}
	m.shell = read("command", t.Shell)
	locate(m.shell)
	for _, word := range t.Argv {
		m.argv = append(m.argv, read("command", word))
	}
	m.name, m.dir, m.output = read("name", t.Name), read("dir", t.Dir), read("output", t.Output)
	for _, v := range t.Env {
		m.keys, m.env = append(m.keys, v.Key), append(m.env, read("env."+v.Key, v.Value))
	}
	for _, name := range params {
		if len(problems) == 0 && !used[name] {
			problems = append(problems, fmt.Sprintf("parameter %s is not used; write {%[1]s} where its value belongs", name))
		}
	}
	if len(problems) > 0 {
		return nil, errors.New(problems[0])
	}
	return m, nil
}

// Make is the text of one trial.
func (m *Maker) Make(trial []job.Param) (job.Template, error) {
	values := make(map[string]string, len(trial))
	for _, p := range trial {
		values[p.Name] = p.Value
	}
	var made job.Template
	var err error
	if made.Shell, err = m.shell.fill(values, true); err != nil {
		return made, fmt.Errorf("command: %w", err)
	}
	raw := func(w words) string {
		filled, _ := w.fill(values, false) // only quoting fails
		return filled
	}
	for _, w := range m.argv {
		made.Argv = append(made.Argv, raw(w))
	}
	made.Name, made.Dir, made.Output = raw(m.name), raw(m.dir), raw(m.output)
	for i, w := range m.env {
		made.Env = append(made.Env, job.EnvVar{Key: m.keys[i], Value: raw(w)})
	}
	return made, nil
}

// Names are the parameters of axes, for NewMaker.
func Names(axes []Axis) []string { return names(axes) }
