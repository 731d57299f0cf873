package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// itemReader turns one mapping into an item. Every key that is wrong is told,
// not only the first.
type itemReader struct {
	*specs
	item    Item
	asking  asking
	seen    []string // keys that were there, in their one spelling
	command bool
}

func (r *itemReader) read(v *value) {
	r.asking = asking{formOnly: true}
	r.asking.Spec = job.Defaults()
	before := len(r.errs.Problems) + r.errs.More
	if len(v.entries) > maxPairs {
		r.errs.add(r.name, v.line, fmt.Sprintf("found %d keys in one job, allowed %d", len(v.entries), maxPairs))
		return
	}
	for i := range v.entries {
		e := &v.entries[i]
		if err := r.entry(e); err != nil {
			r.errs.add(r.name, e.line, err.Error())
		}
	}
	if !r.command {
		r.errs.add(r.name, v.line, "found no command, allowed command: a shell line, or a list of words")
	}
	if len(r.errs.Problems)+r.errs.More > before {
		return
	}
	err := checkSpec(&r.asking.Spec, r.asking.gpusGiven)
	if err == nil {
		err = CheckInject(&job.Spec{Shell: r.item.Shell, Inject: r.asking.Spec.Inject})
	}
	if err != nil {
		r.errs.add(r.name, v.line, err.Error())
	}
}

func (r *itemReader) entry(e *entry) error {
	if strings.EqualFold(e.key, commandKey) {
		if r.command {
			return fmt.Errorf("found key command twice, allowed once")
		}
		r.command = true
		return r.setCommand(&e.value)
	}
	f, err := lookup(e.key, FileOnly, specKeys)
	if err != nil {
		return err
	}
	if slices.Contains(r.seen, f.Key) {
		return fmt.Errorf("found key %s twice, allowed once", f.Key)
	}
	r.seen = append(r.seen, f.Key)
	if f.Key == envKey {
		return r.setEnv(e.key, &e.value)
	}
	var text string
	if f.Many {
		var words []string
		words, err = e.value.wordsOf(e.key)
		text = strings.Join(words, ",")
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
		return fmt.Errorf("found variable %s twice, allowed once", text.Found(name))
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
			return fmt.Errorf("command: found nothing, allowed a shell line, or a list of words")
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
		return fmt.Errorf("command: found words of %d bytes together, allowed %d", total, maxArgvBytes)
	}
	if words[0] == "" {
		return fmt.Errorf("command: found nothing as the first word, allowed a program")
	}
	r.item.Argv = words
	return nil
}

func checkWord(word string) error {
	if len(word) > maxCommandBytes {
		return fmt.Errorf("command: found %d bytes, allowed %d: put it into a script", len(word), maxCommandBytes)
	}
	return nil
}

// specKeys are the keys of a spec file.
var specKeys = append([]string{commandKey}, askKeys...)
