package jobfile

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
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

// Directive is one option of a script as it was written, and its line.
type Directive struct {
	Line int
	Text string
}

// Script is what the leading comments of a script ask for.
type Script struct {
	// Pairs are what #SBATCH lines say, then what #BERTH lines say, so that
	// the latter win.
	Pairs []Pair
	// Ignored are the options of #SBATCH lines that berth has no meaning for.
	Ignored []Directive
}

// ParseScript reads the leading comments of a script: up to the first line
// that is neither blank nor a comment. The error is an *Errors.
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
			r.errs.add(name, number, fmt.Sprintf("found more than %d directives, allowed %d", maxDirectives, maxDirectives))
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

// cutMark reports whether a comment is a directive: its mark, and then white
// space. Anything else, such as ##BERTH, is a comment like any other.
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
		r.errs.add(r.name, line, err.Error())
	}
}

func directiveWords(text []byte) ([]string, error) {
	switch {
	case len(text) > maxDirectiveBytes:
		return nil, fmt.Errorf("found a directive of %d bytes, allowed %d", len(text), maxDirectiveBytes)
	case bytes.IndexByte(text, 0) >= 0:
		return nil, fmt.Errorf("found a NUL byte, allowed text")
	case !utf8.Valid(text):
		return nil, fmt.Errorf("found bytes that are no UTF-8, allowed text")
	}
	return splitWords(string(text))
}

// flags reads the words of one #BERTH line. What is wrong with one flag is
// told, and the rest read all the same.
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
			r.errs.add(r.name, line, err.Error())
			continue
		}
		r.berth = append(r.berth, f.pair)
	}
	return nil
}

// script puts both kinds of directive together.
func (r *scriptReader) script() Script {
	pairs, ignored := r.translate()
	given := func(key string) bool {
		return slices.ContainsFunc(r.berth, func(p Pair) bool { return p.Key == key })
	}
	if given("ids") && !given("gpus") {
		// The cards that a #BERTH line names are also how many.
		pairs = slices.DeleteFunc(pairs, func(p Pair) bool { return p.Key == "gpus" })
	}
	return Script{Pairs: append(pairs, r.berth...), Ignored: ignored}
}

// checkForm reports what is wrong with a value by itself.
func checkForm(name string, pair Pair) error {
	f, err := Lookup(pair.Key)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return (&asking{formOnly: true}).put(name, f, pair.Value)
}
