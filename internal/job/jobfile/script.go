package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"unicode/utf8"

	"berth/internal/text"
)

// Bounds on the directives of a script.
const (
	maxDirectiveBytes = 64 << 10
	maxDirectives     = 1000
)

const (
	berthMark = "#BERTH"
	slurmMark = "#SBATCH"
)

// Directive is one option of a script as written, and its line.
type Directive struct {
	Line int
	Text string
}

// Script is what the leading comments of a script request.
type Script struct {
	// Pairs are those of #SBATCH lines, then those of #BERTH lines, which win.
	Pairs []Pair
	// Ignored are the options of #SBATCH lines that mean nothing to berth.
	Ignored []Directive
}

// ParseScript reads the comments of a script up to the first line that is
// neither blank nor a comment. The error is an *Errors.
func ParseScript(name string, content []byte) (Script, error) {
	r := scriptReader{name: name}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	for number, directives := 1, 0; len(content) > 0; number++ {
		raw, rest, _ := bytes.Cut(content, []byte{'\n'})
		content = rest
		if text := trim(raw); len(text) == 0 {
			continue
		} else if text[0] != '#' {
			break
		}
		mark, text, found := cutMark(raw)
		if !found {
			continue
		}
		if directives++; directives > maxDirectives {
			r.errs.Add(name, number, fmt.Sprintf("expected at most %d directives, found more", maxDirectives))
			break
		}
		r.directive(number, mark, text)
	}
	script := r.script()
	if len(r.errs.Problems) > 0 {
		slices.SortStableFunc(r.errs.Problems, func(a, b Problem) int { return a.Line - b.Line })
		return Script{}, &r.errs
	}
	return script, nil
}

// cutMark reports whether a comment is a directive: a mark and white space.
// Anything else, such as ##BERTH, is an ordinary comment.
func cutMark(raw []byte) (mark string, text []byte, found bool) {
	for _, mark := range []string{berthMark, slurmMark} {
		rest, has := bytes.CutPrefix(raw, []byte(mark))
		if has && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			return mark, rest, true
		}
	}
	return "", nil, false
}

type scriptReader struct {
	name  string
	errs  Errors
	berth []Pair
	slurm []slurmOption
}

func (r *scriptReader) directive(line int, mark string, text []byte) {
	words, err := directiveWords(text)
	if err == nil && mark == slurmMark {
		r.slurm, err = appendSlurm(r.slurm, line, words)
	} else if err == nil {
		err = r.flags(line, words)
	}
	if err != nil {
		r.errs.Add(r.name, line, err.Error())
	}
}

func directiveWords(raw []byte) ([]string, error) {
	switch {
	case len(raw) > maxDirectiveBytes:
		return nil, fmt.Errorf("expected at most %d bytes in a directive, found %d", maxDirectiveBytes, len(raw))
	case bytes.IndexByte(raw, 0) >= 0:
		return nil, fmt.Errorf("expected text, found a NUL byte")
	case !utf8.Valid(raw):
		return nil, fmt.Errorf("expected UTF-8 text, found other bytes")
	}
	words, err := text.ShellWords(string(raw), true)
	if errors.Is(err, text.ErrBackslash) {
		err = errors.New("expected one directive per line, found a backslash at the end of the line")
	}
	return words, err
}

// flags reads the words of one #BERTH line. After a bad value it reports the
// error and goes on with the next flag.
func (r *scriptReader) flags(line int, words []string) error {
	check := asking{formOnly: true}
	for len(words) > 0 {
		f, rest, err := cutFlag(words)
		if err != nil {
			return err
		}
		words = rest
		err = check.put(f.name, f.field, f.pair.Value)
		if err == nil && f.pair.Key == envKey {
			f.pair, err = Plain(f.pair)
		}
		if err != nil {
			r.errs.Add(r.name, line, err.Error())
			continue
		}
		r.berth = addPair(r.berth, f)
	}
	return nil
}

// script combines both kinds of directive.
func (r *scriptReader) script() Script {
	pairs, ignored := r.translate()
	if len(r.slurm) > 0 {
		pairs = slices.Insert(pairs, 0, Pair{"slurm_env", "yes"})
		// Without a name of its own, a Slurm job has its script's.
		if name := (Pair{"name", path.Base(r.name)}); checkForm("name", name) == nil {
			pairs = slices.Insert(pairs, 0, name)
		}
	}
	given := func(key string) bool {
		return slices.ContainsFunc(r.berth, func(p Pair) bool { return p.Key == key })
	}
	if given("ids") && !given("gpus") {
		// The ids on a #BERTH line also set the number of GPUs.
		pairs = slices.DeleteFunc(pairs, func(p Pair) bool { return p.Key == "gpus" })
	}
	return Script{Pairs: JoinSetups(append(pairs, r.berth...)), Ignored: ignored}
}

// addPair adds a flag to those of earlier lines: the last one wins, unless they
// add up.
func addPair(pairs []Pair, f givenFlag) []Pair {
	if at := slices.IndexFunc(pairs, func(p Pair) bool { return p.Key == f.pair.Key }); at >= 0 && f.field.Repeats() {
		pairs[at].Value += f.field.Many + f.pair.Value
		return pairs
	}
	return append(pairs, f.pair)
}

// checkForm checks a value without the rest of its job.
func checkForm(name string, pair Pair) error {
	f, err := Lookup(pair.Key)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return (&asking{formOnly: true}).put(name, f, pair.Value)
}
