package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/job"
)

// slurmOption is one option of a #SBATCH line.
type slurmOption struct {
	line  int
	text  string // as it was written
	name  string // the long one without its dashes; empty: nothing berth knows
	value string
}

// slurmOptions are the options berth has the same meaning for, and whether
// they take a value.
var slurmOptions = map[string]bool{
	"job-name": true, "output": true, "error": true, "time": true, "mem": true,
	"gres": true, "gpus": true, "gpus-per-node": true, "gpus-per-task": true,
	"cpus-per-task": true, "ntasks": true, "ntasks-per-node": true, "nodes": true,
	"array": true, "begin": true, "dependency": true, "chdir": true, "export": true, "signal": true,
	"hold": false, "requeue": false, "no-requeue": false,
}

var slurmShort = map[byte]string{
	'J': "job-name", 'o': "output", 'e': "error", 't': "time", 'G': "gpus", 'c': "cpus-per-task", 'n': "ntasks",
	'N': "nodes", 'a': "array", 'b': "begin", 'd': "dependency", 'D': "chdir", 'H': "hold",
}

// appendSlurm reads the words of one #SBATCH line.
func appendSlurm(options []slurmOption, line int, words []string) ([]slurmOption, error) {
	for len(words) > 0 {
		word := words[0]
		o := slurmOption{line: line}
		taken, attached := 1, false
		var known, takes bool
		switch {
		case strings.HasPrefix(word, "--"):
			o.name, o.value, attached = strings.Cut(word[2:], "=")
			takes, known = slurmOptions[o.name]
		case len(word) > 1 && word[0] == '-':
			o.name, known = slurmShort[word[1]]
			o.value, attached, takes = word[2:], len(word) > 2, slurmOptions[o.name]
		}
		next := len(words) > 1 && !attached
		switch {
		case known && takes && next, !known && strings.HasPrefix(word, "-") && next && !strings.HasPrefix(words[1], "-"):
			o.value, taken = words[1], 2
		case known && takes && !attached:
			return options, fmt.Errorf("%s: found no value, allowed one", word)
		case !takes && attached:
			known = false // a value nobody expects changes the meaning
		}
		if !known {
			o.name = ""
		}
		o.text = job.QuoteArgv(words[:taken])
		options, words = append(options, o), words[taken:]
	}
	return options, nil
}

// translate says in berth's words what the #SBATCH lines ask for. Of an
// option that is repeated the last one counts, as it does in Slurm.
func (r *scriptReader) translate() (pairs []Pair, ignored []Directive) {
	t := slurmTranslator{last: map[string]string{}}
	lastAt := map[string]int{}
	for i, o := range r.slurm {
		if o.text == "hetjob" || o.text == "packjob" {
			t.foreign = i + 1
			break
		}
		if o.name != "" {
			t.last[o.name], lastAt[o.name] = o.value, i
		}
	}
	for i, o := range r.slurm {
		mine := t.foreign == 0 || i < t.foreign-1
		if mine && o.name != "" && lastAt[o.name] != i {
			continue
		}
		said, ok, err := []Pair(nil), false, error(nil)
		if mine && o.name != "" {
			if said, ok, err = t.option(o); err != nil {
				err = fmt.Errorf("--%s: %w", o.name, err)
			}
		}
		for _, pair := range said {
			if err == nil && ok {
				err = checkForm("--"+o.name, pair)
			}
		}
		switch {
		case err != nil:
			r.errs.add(r.name, o.line, err.Error())
		case !ok:
			ignored = append(ignored, Directive{Line: o.line, Text: o.text})
		default:
			pairs = append(pairs, said...)
			if rest := t.rest; rest != "" {
				ignored = append(ignored, Directive{Line: o.line, Text: rest})
			}
		}
		t.rest = ""
	}
	return pairs, ignored
}

// slurmTranslator knows what the other options of a script say, because some
// mean the same only together.
type slurmTranslator struct {
	last    map[string]string
	foreign int    // where the options of another part of the job begin, from 1
	rest    string // what of an option has no meaning, where some has
}

// oneTask reports whether the job is one process, as every job of berth is.
func (t *slurmTranslator) oneTask() bool {
	for _, name := range []string{"ntasks", "ntasks-per-node"} {
		if count, given := t.last[name]; given && count != "1" {
			return false
		}
	}
	return true
}

// option says one option in berth's words. It is not ok where berth has no
// such meaning, and an error where Slurm would refuse it too.
func (t *slurmTranslator) option(o slurmOption) (pairs []Pair, ok bool, err error) {
	one := func(key, value string) ([]Pair, bool, error) { return []Pair{{Key: key, Value: value}}, true, nil }
	switch o.name {
	case "job-name":
		return one("name", o.value)
	case "chdir":
		return one("dir", o.value)
	case "array":
		return one("array", o.value)
	case "hold":
		return []Pair{{Key: "hold", Value: "yes", Bare: true}}, true, nil
	case "requeue":
		return []Pair{{Key: "requeue", Value: "yes", Bare: true}}, true, nil
	case "no-requeue":
		return one("requeue", "no")
	case "begin":
		_, err := beginForm(o.value)
		return []Pair{{Key: "begin", Value: o.value}}, err == nil, nil
	case "ntasks", "ntasks-per-node":
		return nil, o.value == "1", nil
	case "nodes":
		least, _, _ := strings.Cut(o.value, "-")
		return nil, least == "1", nil
	case "cpus-per-task":
		return []Pair{{Key: "cpus", Value: o.value}}, t.oneTask(), nil
	case "gpus", "gpus-per-node":
		return slurmGPUs(o.value)
	case "gpus-per-task":
		if !t.oneTask() {
			return nil, false, nil
		}
		return slurmGPUs(o.value)
	case "gres":
		pairs, t.rest = slurmGRES(o.value)
		return pairs, pairs != nil, nil
	case "output":
		_, isArray := t.last["array"]
		pattern, ok := slurmOutput(o.value, isArray)
		return []Pair{{Key: "output", Value: pattern}}, ok, nil
	case "error":
		output, given := t.last["output"]
		return nil, given && output == o.value, nil
	}
	return slurmValue(o)
}

// slurmValue reads the options whose values are written differently.
func slurmValue(o slurmOption) (pairs []Pair, ok bool, err error) {
	switch o.name {
	case "time":
		limit, err := slurmTime(o.value)
		if limit == 0 || err != nil {
			return nil, err == nil, err
		}
		return []Pair{{Key: "timeout", Value: fmt.Sprintf("%ds", limit)}}, true, nil
	case "mem":
		mib, err := slurmMem(o.value)
		return []Pair{{Key: "mem", Value: fmt.Sprint(mib)}}, mib > 0, err
	case "signal":
		pair := Pair{Key: "signal", Value: slurmSignal(o.value)}
		return []Pair{pair}, checkForm(o.name, pair) == nil, nil
	case "dependency":
		after, ok := slurmDependency(o.value)
		return []Pair{{Key: "after", Value: after}}, ok, nil
	case "export":
		pairs, ok := slurmExport(o.value)
		return pairs, ok, nil
	}
	panic("bug: no meaning for the option " + o.name)
}

// slurmExport reads which variables a job gets: names to keep, and NAME=VALUE
// to set.
func slurmExport(value string) (pairs []Pair, ok bool) {
	var names []string
	export := ""
	for part := range strings.SplitSeq(value, ",") {
		name, text, set := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case set:
			pairs = append(pairs, Pair{Key: envPrefix + name, Value: text})
		case strings.EqualFold(name, "all"), strings.EqualFold(name, "none"):
			export = strings.ToLower(name)
		default:
			names = append(names, name)
		}
		if !isVariable(name) || name == "NIL" {
			return nil, false
		}
	}
	switch {
	case export == "" && len(names) == 0:
		export = "none"
	case export == "":
		export = strings.Join(names, ",")
	}
	return append(pairs, Pair{Key: "export", Value: export}), true
}
