package jobfile

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"berth/internal/job"
	"berth/internal/text"
)

// slurmOption is one option of a #SBATCH line.
type slurmOption struct {
	line  int
	text  string // as it was written
	name  string // the long name without its dashes; empty: unknown to berth
	value string
}

// slurmMeaning translates an option into berth's keys. ok is false if berth has
// no equivalent and the job does the same without it. An error means that Slurm
// would refuse the value too, or that the job would not do what its author meant.
type slurmMeaning func(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error)

// as is an option that berth has under another name.
func as(key string) slurmMeaning {
	return func(_ *slurmTranslator, value string) ([]Pair, bool, error) { return []Pair{{key, value}}, true, nil }
}

// times is an amount for each of the CPUs or GPUs that another option counts. The
// job finds the amount in a variable.
func times(key, counted string, amount func(string) (int64, error), variable string) slurmMeaning {
	return func(t *slurmTranslator, value string) ([]Pair, bool, error) {
		each, err := amount(value)
		if err != nil {
			return nil, false, err
		}
		return []Pair{{key, fmt.Sprint(each * t.count(counted))}, {envPrefix + variable, fmt.Sprint(each)}}, each > 0, nil
	}
}

// count is how many CPUs or GPUs the script asks for; 1 if it does not say.
func (t *slurmTranslator) count(key string) int64 {
	for _, option := range []struct {
		name    string
		meaning slurmMeaning
	}{{"cpus-per-task", slurmCPUs}, {"ntasks", slurmTasks}, {"ntasks-per-node", slurmTasks}, {"gpus", slurmGPUs}, {"gpus-per-node", slurmGPUs}, {"gpus-per-task", slurmTaskGPUs}, {"gres", slurmGRES}} {
		var pairs []Pair
		if value, given := t.last[option.name]; given {
			pairs, _, _ = option.meaning(&slurmTranslator{last: t.last}, value) // its own line has the error
		}
		for _, pair := range pairs {
			if n, whole := text.Digits(pair.Value, 6); whole && pair.Key == key {
				return int64(n)
			}
		}
	}
	return 1
}

// one is an option that changes nothing if its value is 1, as it is for every job
// of berth.
func one(_ *slurmTranslator, value string) ([]Pair, bool, error) {
	if value != "1" {
		return nil, false, fmt.Errorf("expected 1, found %s: a berth job runs on one machine", text.Found(value))
	}
	return nil, true, nil
}

type translatable struct {
	short   byte
	bare    string
	meaning slurmMeaning
}

// slurmOptions are the options that berth can translate. bare is the value of
// an option that takes none.
var slurmOptions = sync.OnceValue(func() map[string]translatable {
	return map[string]translatable{
		"job-name":        {short: 'J', meaning: as("name")},
		"chdir":           {short: 'D', meaning: as("dir")},
		"array":           {short: 'a', meaning: as("array")},
		"hold":            {short: 'H', bare: "yes", meaning: as("hold")},
		"requeue":         {bare: "yes", meaning: as("requeue")},
		"no-requeue":      {bare: "no", meaning: slurmNoRequeue},
		"ntasks":          {short: 'n', meaning: slurmTasks},
		"ntasks-per-node": {meaning: slurmTasks},
		"ntasks-per-gpu":  {meaning: one},
		"nodes":           {short: 'N', meaning: slurmNodes},
		"cpus-per-task":   {short: 'c', meaning: slurmCPUs},
		"cpus-per-gpu":    {meaning: times("cpus", "gpus", slurmCount, "SLURM_CPUS_PER_GPU")},
		"gpus":            {short: 'G', meaning: slurmGPUs},
		"gpus-per-node":   {meaning: slurmGPUs},
		"gpus-per-task":   {meaning: slurmTaskGPUs},
		"gres":            {meaning: slurmGRES},
		"time":            {short: 't', meaning: slurmTime},
		"mem":             {meaning: slurmMem},
		"mem-per-cpu":     {meaning: times("mem", "cpus", slurmMiB, "SLURM_MEM_PER_CPU")},
		"mem-per-gpu":     {meaning: times("mem", "gpus", slurmMiB, "SLURM_MEM_PER_GPU")},
		"begin":           {short: 'b', meaning: slurmBegin},
		"signal":          {meaning: slurmSignal},
		"dependency":      {short: 'd', meaning: slurmDependency},
		"export":          {meaning: slurmExport},
		"output":          {short: 'o', meaning: slurmOutput},
		"error":           {short: 'e', meaning: slurmError},
		"open-mode":       {meaning: slurmOpenMode},
		"mail-type":       {meaning: slurmMailType},
		"mail-user":       {meaning: slurmMailUser},
	}
})

// slurmLong is the long name of a short option; empty: unknown.
func slurmLong(letter byte) string {
	for name, option := range slurmOptions() {
		if option.short == letter {
			return name
		}
	}
	return ""
}

// SlurmOption is an option of Slurm's commands that jobs can be asked for with.
type SlurmOption struct {
	Name, Value string // Name without its dashes
}

// SlurmFlag describes one that berth can translate.
type SlurmFlag struct {
	Name  string
	Short byte   // 0: none
	Bare  string // the value of an option that takes none
}

// SlurmFlags are all that berth can translate.
func SlurmFlags() (flags []SlurmFlag) {
	for name, option := range slurmOptions() {
		flags = append(flags, SlurmFlag{name, option.short, option.bare})
	}
	return flags
}

// TranslateSlurm turns options into berth's keys. ignored are those without which
// the job does the same.
func TranslateSlurm(options []SlurmOption) (pairs []Pair, ignored []string, err error) {
	r := scriptReader{}
	for _, o := range options {
		r.slurm = append(r.slurm, slurmOption{text: "--" + o.Name + "=" + o.Value, name: o.Name, value: o.Value})
	}
	pairs, left := r.translate()
	for _, one := range left {
		ignored = append(ignored, one.Text)
	}
	if len(r.errs.Problems) > 0 {
		return nil, nil, errors.New(r.errs.Problems[0].Text)
	}
	return pairs, ignored, nil
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
		option, known := slurmOptions()[o.name]
		takes, next := known && option.bare == "", len(words) > 1 && !attached
		switch {
		case takes && next, !known && strings.HasPrefix(word, "-") && next && !strings.HasPrefix(words[1], "-"):
			o.value, taken = words[1], 2
		case takes && !attached:
			return options, fmt.Errorf("%s: expected a value, found none", word)
		case !takes && attached:
			known = false // an unexpected value changes the meaning
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

// translate turns the #SBATCH lines into berth's keys. The last of a repeated
// option wins, as in Slurm.
func (r *scriptReader) translate() (pairs []Pair, ignored []Directive) {
	t := slurmTranslator{last: map[string]string{}}
	lastAt := map[string]int{}
	for i, o := range r.slurm {
		if o.text == "hetjob" || o.text == "packjob" {
			r.errs.Add(r.name, o.line, o.text+": a berth job has one part; submit the parts as separate jobs")
			return nil, nil
		}
		if o.name != "" {
			t.last[o.name], lastAt[o.name] = o.value, i
		}
	}
	for i, o := range r.slurm {
		if o.name != "" && lastAt[o.name] != i {
			continue
		}
		translated, ok, err := []Pair(nil), false, error(nil)
		if o.name != "" {
			if translated, ok, err = slurmOptions()[o.name].meaning(&t, o.value); err != nil {
				err = fmt.Errorf("--%s: %w", o.name, err)
			}
		}
		for _, pair := range translated {
			if err == nil && ok {
				err = checkForm("--"+o.name, pair)
			}
		}
		switch {
		case err != nil:
			r.errs.Add(r.name, o.line, err.Error())
		case !ok:
			ignored = append(ignored, Directive{Line: o.line, Text: o.text})
		default:
			pairs = append(pairs, translated...)
			if rest := t.rest; rest != "" {
				ignored = append(ignored, Directive{Line: o.line, Text: rest})
			}
		}
		t.rest = ""
	}
	return pairs, ignored
}

// slurmTranslator knows all options of a script, because the meaning of some
// depends on others.
type slurmTranslator struct {
	last map[string]string
	rest string // the part of an option that berth ignores
}
