package jobfile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/job/sweep"
	"berth/internal/text"
)

// maxPairs bounds the keys of one job: each key a few times, and as many
// variables as a job may have.
const maxPairs = 4 * maxEnv

// Pair is one key with its value as text. A key without a value gets the one
// its field has for that (Field.Alone).
type Pair struct{ Key, Value string }

// Asked is one job as requested: its spec, and settings that only its
// submission uses.
type Asked struct {
	Spec      job.Spec
	Array     *Array // nil: a single job
	Hold      bool
	Dedup     bool
	NotBefore time.Time // zero: no earliest time
	Note      string    // where the job gets something else than it may seem to request
	BareTime  bool      // the time limit was written without a unit
}

// asking is a job while its keys are being read.
type asking struct {
	Asked
	now       time.Time
	maxArray  int
	gpusGiven bool
	notified  bool // a rule of this job was read; others are added to it
	// formOnly is set while neither the time nor the limit on arrays is known:
	// array and begin are then only checked for their form.
	formOnly bool
	inFile   bool // a line of a jobs file
	axes     []sweep.Axis
}

// Ask reads one job. It starts from the defaults; the last value of a repeated
// key wins. The caller sets the command.
func Ask(pairs []Pair, now time.Time, defaults job.Spec, maxArray int) (Asked, error) {
	if len(pairs) > maxPairs {
		return Asked{}, fmt.Errorf("expected at most %d keys in one job, found %d", maxPairs, len(pairs))
	}
	a := asking{now: now, maxArray: maxArray}
	a.Spec = defaults
	for _, pair := range pairs {
		f, err := Lookup(pair.Key)
		if err == nil {
			err = a.put(pair.Key, f, pair.Value)
		}
		if err != nil {
			return Asked{}, err
		}
	}
	if a.Spec.VRAMModel != "" {
		return Asked{}, &KeyError{Key: "vram", Err: errors.New("a model is sized where its files are, before the job is submitted; expected a size (berth estimate prints it)")}
	}
	if err := checkSpec(&a.Spec, a.gpusGiven); err != nil {
		return Asked{}, err
	}
	return a.Asked, nil
}

// Reset gives a key of a job its default again; env.NAME removes a variable.
func Reset(a *Asked, key string) error {
	f, err := Lookup(key)
	switch {
	case err != nil:
		return err
	case f.reset == nil:
		return fmt.Errorf("%s cannot be unset", key)
	}
	f.reset(a)
	return nil
}

// put sets one key. Errors use the name that the user wrote.
func (a *asking) put(name string, f *Field, value string) error {
	var err error
	switch {
	case f.Alone != "" && value == "":
		err = text.Mismatch(value, "yes or no")
	case strings.IndexByte(value, 0) >= 0:
		err = errors.New("expected text, found a NUL byte")
	default:
		err = f.read(a, value)
	}
	if err != nil {
		return &KeyError{Key: name, Err: err}
	}
	return nil
}

// KeyError is a value that a key does not take.
type KeyError struct {
	Key string // as the user wrote it
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// CheckPair reads one key alone. What it means beside other keys is not checked.
func CheckPair(pair Pair, now time.Time) error {
	f, err := Lookup(pair.Key)
	if err != nil {
		return err
	}
	a := asking{now: now, maxArray: 1}
	a.Spec.GPUs = 1
	return a.put(pair.Key, f, pair.Value)
}
