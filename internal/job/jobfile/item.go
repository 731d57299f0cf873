package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/job/sweep"
	"berth/internal/text"
)

// itemReader turns one mapping into an item. It reports every wrong key, not
// only the first.
type itemReader struct {
	*specs
	item    Item
	asking  asking
	seen    []string // keys already read, under their canonical names
	command bool
}

func (r *itemReader) read(v *value) {
	r.asking = asking{formOnly: true}
	r.asking.Spec = job.Defaults()
	before := len(r.errs.Problems) + r.errs.More
	if len(v.entries) > maxPairs {
		r.errs.Add(r.name, v.line, fmt.Sprintf("expected at most %d keys in one job, found %d", maxPairs, len(v.entries)))
		return
	}
	for i := range v.entries {
		e := &v.entries[i]
		if err := r.entry(e); err != nil {
			r.errs.Add(r.name, e.line, err.Error())
		}
	}
	if !r.command {
		r.errs.Add(r.name, v.line, "expected the key command (a shell line, or a list of words), found none")
	}
	if len(r.errs.Problems)+r.errs.More > before {
		return
	}
	err := checkSpec(&r.asking.Spec, r.asking.gpusGiven)
	if err == nil {
		err = CheckInject(&job.Spec{Shell: r.item.Shell, Inject: r.asking.Spec.Inject})
	}
	if err != nil {
		r.errs.Add(r.name, v.line, err.Error())
	}
}

func (r *itemReader) entry(e *entry) error {
	if strings.EqualFold(e.key, commandKey) {
		if r.command {
			return fmt.Errorf("expected each key once, found command twice")
		}
		r.command = true
		return r.setCommand(&e.value)
	}
	if strings.EqualFold(e.key, sweepWord) {
		return r.setSweep(&e.value)
	}
	f, err := lookup(e.key, FileOnly, specKeys)
	if err != nil {
		return err
	}
	if slices.Contains(r.seen, f.Key) {
		return fmt.Errorf("expected each key once, found %s twice", f.Key)
	}
	r.seen = append(r.seen, f.Key)
	if f.Key == envKey {
		return r.setEnv(e.key, &e.value)
	}
	var text string
	if f.Many != "" {
		var words []string
		words, err = e.value.wordsOf(e.key)
		text = strings.Join(words, f.Many)
	} else {
		text, err = e.value.textOf(e.key)
	}
	if err != nil {
		return err
	}
	return r.put(e.key, f, text)
}

// put checks the value and keeps the pair.
func (r *itemReader) put(name string, f *Field, text string) error {
	r.item.Pairs = append(r.item.Pairs, Pair{Key: f.Key, Value: text})
	return r.asking.put(name, f, text)
}

// setEnv reads variables: a mapping, or a list of NAME=VALUE.
func (r *itemReader) setEnv(key string, v *value) error {
	if v.kind != mapping {
		words, err := v.wordsOf(key)
		for i := 0; i < len(words) && err == nil; i++ {
			name, written, found := strings.Cut(words[i], "=")
			if !found {
				return fmt.Errorf("%s: %w", key, text.Mismatch(words[i], "a mapping, or a list of NAME=VALUE"))
			}
			err = r.variable(name, value{line: v.line, text: written})
		}
		return err
	}
	for i := range v.entries {
		if err := r.variable(v.entries[i].key, v.entries[i].value); err != nil {
			return err
		}
	}
	return nil
}

func (r *itemReader) variable(name string, v value) error {
	f, err := variable(name)
	if err != nil {
		return err
	}
	if slices.Contains(r.seen, f.Key) {
		return fmt.Errorf("expected each variable once, found %s twice", text.Found(name))
	}
	r.seen = append(r.seen, f.Key)
	written, err := v.textOf(f.Key)
	if err != nil {
		return err
	}
	return r.put(f.Key, f, written)
}

func (r *itemReader) setCommand(v *value) error {
	if v.kind != list {
		line, err := v.textOf(commandKey)
		if err != nil {
			return err
		}
		if line = strings.TrimSpace(line); line == "" {
			return fmt.Errorf("command: expected a shell line, or a list of words; found nothing")
		}
		r.item.Shell = line
		return checkWord(line)
	}
	words, err := v.wordsOf(commandKey)
	if err != nil {
		return err
	}
	total := 0
	for _, word := range words {
		if err := checkWord(word); err != nil {
			return err
		}
		total += len(word) + 1
	}
	if total > maxArgvBytes {
		return fmt.Errorf("command: expected at most %d bytes in all words, found %d", maxArgvBytes, total)
	}
	if words[0] == "" {
		return fmt.Errorf("command: expected a program as the first word, found nothing")
	}
	r.item.Argv = words
	return nil
}

func checkWord(word string) error {
	if len(word) > maxCommandBytes {
		return fmt.Errorf("command: expected at most %d bytes, found %d: put it into a script", maxCommandBytes, len(word))
	}
	return nil
}

// setSweep reads the parameters of a sweep, in the form of the API.
func (r *itemReader) setSweep(v *value) error {
	if r.item.Axes != nil {
		return fmt.Errorf("expected each key once, found %s twice", sweepWord)
	}
	var asked struct {
		Axes    []sweep.Axis `json:"axes"`
		Metrics []string     `json:"metrics"`
	}
	written, err := json.Marshal(v.plain())
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(written))
		d.DisallowUnknownFields()
		err = d.Decode(&asked)
	}
	if err != nil || len(asked.Axes) == 0 {
		return fmt.Errorf("%s: expected a mapping with axes, as in [{names: [lr], rows: [[1e-3], [1e-4]]}], and with metrics if you like", sweepWord)
	}
	r.item.Axes, r.item.Metrics = asked.Axes, asked.Metrics
	return nil
}

// specKeys are the keys of a spec file.
func specKeys() []string { return append([]string{commandKey, sweepWord}, askKeys()...) }
