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

// slurmMeaning is what an option says in berth's words. It is not ok where
// berth has no such meaning, and an error where Slurm would refuse it too.
type slurmMeaning func(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error)

// as is an option that is a field of berth's under another name.
func as(key string) slurmMeaning {
	return func(_ *slurmTranslator, value string) ([]Pair, bool, error) { return []Pair{{key, value}}, true, nil }
}

// oneTask is an option that means the same where the job is one process, as
// every job of berth is.
func oneTask(meaning slurmMeaning) slurmMeaning {
	return func(t *slurmTranslator, value string) ([]Pair, bool, error) {
		for _, name := range []string{"ntasks", "ntasks-per-node"} {
			if count, given := t.last[name]; given && count != "1" {
				return nil, false, nil
			}
		}
		return meaning(t, value)
	}
}

// one is an option that says nothing as long as it is 1.
func one(_ *slurmTranslator, value string) ([]Pair, bool, error) { return nil, value == "1", nil }

// slurmOptions are the options berth has the same meaning for. One that takes
// no value is read as if it were given the one that stands for it here.
var slurmOptions = map[string]struct {
	short   byte
	bare    string
	meaning slurmMeaning
}{
	"job-name":        {short: 'J', meaning: as("name")},
	"chdir":           {short: 'D', meaning: as("dir")},
	"array":           {short: 'a', meaning: as("array")},
	"hold":            {short: 'H', bare: "yes", meaning: as("hold")},
	"requeue":         {bare: "yes", meaning: as("requeue")},
	"no-requeue":      {bare: "no", meaning: as("requeue")},
	"ntasks":          {short: 'n', meaning: one},
	"ntasks-per-node": {meaning: one},
	"nodes":           {short: 'N', meaning: slurmNodes},
	"cpus-per-task":   {short: 'c', meaning: oneTask(as("cpus"))},
	"gpus":            {short: 'G', meaning: slurmGPUs},
	"gpus-per-node":   {meaning: slurmGPUs},
	"gpus-per-task":   {meaning: oneTask(slurmGPUs)},
	"gres":            {meaning: slurmGRES},
	"time":            {short: 't', meaning: slurmTime},
	"mem":             {meaning: slurmMem},
	"begin":           {short: 'b', meaning: slurmBegin},
	"signal":          {meaning: slurmSignal},
	"dependency":      {short: 'd', meaning: slurmDependency},
	"export":          {meaning: slurmExport},
	"output":          {short: 'o', meaning: slurmOutput},
	"error":           {short: 'e', meaning: slurmError},
}

// slurmLong is the long option that a letter stands for; empty: none.
func slurmLong(letter byte) string {
	for name, option := range slurmOptions {
		if option.short == letter {
			return name
		}
	}
	return ""
}

// appendSlurm reads the words of one #SBATCH line.
func appendSlurm(options []slurmOption, line int, words []string) ([]slurmOption, error) {
	for len(words) > 0 {
		word := words[0]
		o := slurmOption{line: line}
		taken, attached := 1, false
		switch {
		case strings.HasPrefix(word, "--"):
			o.name, o.value, attached = strings.Cut(word[2:], "=")
		case len(word) > 1 && word[0] == '-':
			o.name, o.value, attached = slurmLong(word[1]), word[2:], len(word) > 2
		}
		option, known := slurmOptions[o.name]
		takes, next := known && option.bare == "", len(words) > 1 && !attached
		switch {
		case takes && next, !known && strings.HasPrefix(word, "-") && next && !strings.HasPrefix(words[1], "-"):
			o.value, taken = words[1], 2
		case takes && !attached:
			return options, fmt.Errorf("%s: found no value, allowed one", word)
		case !takes && attached:
			known = false // a value nobody expects changes the meaning
		case !takes:
			o.value = option.bare
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
			if said, ok, err = slurmOptions[o.name].meaning(&t, o.value); err != nil {
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
