package jobfile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// maxPairs bounds what one job may say: every key a few times, and as many
// variables as a job may have.
const maxPairs = 4 * maxEnv

// Pair is one key with its value as text. That of a key which stood alone is
// what the key alone means.
type Pair struct{ Key, Value string }

// Asked is one job as it was asked for: its spec, and what concerns its
// submission alone.
type Asked struct {
	Spec      job.Spec
	Array     *Array // nil: a single job
	Hold      bool
	Dedup     bool
	NotBefore time.Time // zero: at once
}

// asking is a job while its keys are being read.
type asking struct {
	Asked
	now       time.Time
	maxArray  int
	gpusGiven bool
	// formOnly is set where neither the time nor the limit is known yet: an
	// array and a beginning are read, but not worked out.
	formOnly bool
	inFile   bool // a line of a jobs file
}

// Ask reads one job. It starts from the defaults, and the last of a repeated
// key counts. The command is the caller's to set.
func Ask(pairs []Pair, now time.Time, defaults job.Spec, maxArray int) (Asked, error) {
	if len(pairs) > maxPairs {
		return Asked{}, fmt.Errorf("found %d keys in one job, allowed %d", len(pairs), maxPairs)
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
	if err := checkSpec(&a.Spec, a.gpusGiven); err != nil {
		return Asked{}, err
	}
	return a.Asked, nil
}

// put sets one key. A mistake is told under the name the user wrote.
func (a *asking) put(name string, f *Field, value string) error {
	var err error
	switch {
	case f.Alone != "" && value == "":
		err = text.Mismatch(value, "yes or no")
	case strings.IndexByte(value, 0) >= 0:
		err = errors.New("found a NUL byte, allowed text")
	default:
		err = f.read(a, value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
