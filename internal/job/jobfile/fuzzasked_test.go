package jobfile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

// problemsAreOf holds what is true of every refusal: it names a line that the
// text has, and is not longer than a person reads.
func problemsAreOf(t *testing.T, text []byte, err error) {
	t.Helper()
	var errs *Errors
	if !errors.As(err, &errs) || len(errs.Problems) == 0 || len(errs.Problems) > maxProblems {
		t.Fatalf("%#v", err)
	}
	for _, p := range errs.Problems {
		if p.Line < 1 || p.Line > bytes.Count(text, []byte("\n"))+1 || strings.Contains(p.Text, "bug") && !bytes.Contains(text, []byte("bug")) {
			t.Fatalf("%v of %q", p, text)
		}
	}
}

// FuzzSpecs: nothing panics or hangs, what is accepted has a command and keys
// that Ask knows, and JSON means the same whichever name its file has.
func FuzzSpecs(f *testing.F) {
	for _, row := range brokenSpecs {
		if len(row.text) < 10_000 {
			f.Add([]byte(row.text))
		}
	}
	f.Add([]byte("- &base\n  command: x\n  env: {A: 1}\n- <<: *base\n  ids: [1, 3]\n---\ncommand: |\n  a\n  b\n"))
	f.Add([]byte("{\"command\": [\"a\", 1.5e3, true], \"name\": \"\\u00e9\\\\\"}\n[{\"command\": \"x\"}] null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		items, err := ParseSpecs("f", text)
		if err != nil {
			problemsAreOf(t, text, err)
		}
		last := 0
		for _, item := range items {
			if (item.Shell == "") == (item.Argv == nil) || item.Line < 1 || strings.ContainsRune(item.Shell+strings.Join(item.Argv, ""), 0) {
				t.Fatalf("%+v of %q", item, text)
			}
			if item.Line < last && !bytes.ContainsAny(text, "*") {
				t.Fatalf("line %d after %d of %q", item.Line, last, text)
			}
			last = item.Line
			for _, pair := range item.Pairs {
				if !strings.HasPrefix(pair.Key, envPrefix) && !slices.Contains(askKeys(), pair.Key) {
					t.Fatalf("key %s of %q", pair.Key, text)
				}
			}
			askedSafely(t, item.Pairs)
		}
		asJSON, err := ParseSpecs("f.json", text)
		if err == nil && !cmp.Equal(asJSON, items) {
			t.Fatalf("%q is %+v or %+v", text, asJSON, items)
		}
	})
}

// askedSafely asks for a job whose keys were read: only a time that is over,
// a limit that is passed, or an index twice may still be in the way.
func askedSafely(t *testing.T, pairs []Pair) {
	t.Helper()
	got, err := Ask(pairs, noon, job.Defaults(), 100)
	if err != nil {
		if !strings.HasPrefix(err.Error(), "array: ") && !strings.HasPrefix(err.Error(), "begin: ") {
			t.Fatalf("%+v: %v", pairs, err)
		}
		return
	}
	if got.Spec.GPUs < 0 || got.Spec.GPUs > maxGPUs || got.Spec.TimeLimit < 0 || got.Spec.CancelMarked || got.Array != nil && len(got.Array.Indices) > 100 {
		t.Fatalf("%+v", got)
	}
}

// FuzzScript: nothing panics, every option of a directive is either said or
// ignored, and nothing after the leading comments matters.
func FuzzScript(f *testing.F) {
	for _, row := range brokenScripts {
		if len(row.text) < 10_000 {
			f.Add([]byte(row.text))
		}
	}
	f.Add([]byte("#!/bin/sh\n#SBATCH --gres=gpu:a100:2,x --time=1-2:3 -o %x_%A_%a.log --export=ALL,A=1\n#BERTH -g 2 --name 'a b' --hold # c\n"))
	f.Add([]byte("#SBATCH -p gpu --mem 4G --signal=B:10@60 -d afterok:12:13 --array 1-3%2 hetjob -n 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		script, err := ParseScript("f", text)
		if err != nil {
			problemsAreOf(t, text, err)
			return
		}
		for _, pair := range script.Pairs {
			f, err := Lookup(pair.Key)
			if err != nil || f.Key != pair.Key {
				t.Fatalf("%+v: %v", pair, err)
			}
			check := asking{formOnly: true}
			if err := check.put(pair.Key, f, pair.Value); err != nil {
				t.Fatalf("%+v: %v", pair, err)
			}
		}
		for _, d := range script.Ignored {
			if d.Text == "" || d.Line < 1 || d.Line > bytes.Count(text, []byte("\n"))+1 {
				t.Fatalf("%+v of %q", d, text)
			}
		}
		again, err := ParseScript("f", append(slices.Clone(text), "\necho\n#BERTH --nonsense\n"...))
		if err != nil || !cmp.Equal(script, again) {
			t.Fatalf("%+v, with more after it %+v %v", script, again, err)
		}
	})
}

// FuzzSelection: what is accepted is in bounds and means the same again.
func FuzzSelection(f *testing.F) {
	for _, text := range []string{"1-3,7", "17_0-3 @ @~1", "all", "007", "1,,2", "-", "_", "@~"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelection(strings.Fields(text))
		if err != nil {
			return
		}
		for _, r := range s.Ranges {
			if r.From > r.To || r.From < 0 {
				t.Fatalf("%q: %+v", text, r)
			}
		}
		if s.All {
			return
		}
		again, err := ParseSelection(strings.Fields(written(s)))
		if err != nil || !cmp.Equal(s, again) {
			t.Fatalf("%q: %+v, %+v, %v", text, s, again, err)
		}
	})
}

// FuzzBegin: a beginning is never over and never far away.
func FuzzBegin(f *testing.F) {
	for _, text := range []string{"now", "now+2h", "now+1week", "16:00", "24:00", "tomorrow", "2026-03-01T16:00:05", "2026-03-02T00:00:00.5+01:00", "now+1e9d"} {
		f.Add(text, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		now := noon.Add(time.Duration(seconds%1e9) * time.Second)
		begin, err := ParseBegin(text, now)
		if err == nil && (begin.Before(now) || begin.Sub(now) > maxAhead) {
			t.Fatalf("%q at %v is %v", text, now, begin)
		}
		if _, formErr := beginForm(text); formErr != nil && err == nil {
			t.Fatalf("%q: %v", text, formErr)
		}
	})
}

// FuzzArray: each index is in bounds and there once, and there are no more
// than allowed.
func FuzzArray(f *testing.F) {
	for _, text := range []string{"0-99%4", "1,3,5-9", "0-20:5%2", "1073741824", "0-1073741824:1073741824", "5:2", "1-", "%1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		array, err := ParseArray(text, 100)
		if err != nil {
			return
		}
		sorted := slices.Sorted(slices.Values(array.Indices))
		if len(sorted) == 0 || len(sorted) > 100 || len(slices.Compact(sorted)) != len(array.Indices) || sorted[0] < 0 || sorted[len(sorted)-1] > maxIndex || array.Limit < 0 {
			t.Fatalf("%q: %+v", text, array)
		}
	})
}
