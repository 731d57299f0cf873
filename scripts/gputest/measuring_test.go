package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCostsOfASampleAreHeldToTheBudget(t *testing.T) {
	report := func(cards, cardMicroseconds int) string {
		return fmt.Sprintf(`echo '{"cards":%d,"calls":[{"what":"memory","cpu_ns":5000},{"what":"power","cpu_ns":300000},{"what":"UUID","cpu_ns":100},{"what":"rows","cpu_ns":20000}],`+
			`"sample":{"wall_ns":90000,"cpu_ns":%d,"card_cpu_ns":%d,"all_cpu_ns":1900000}}'`, cards, 1000*cards*cardMicroseconds, 1000*cardMicroseconds)
	}
	for _, row := range []struct {
		name, script string
		err, wrong   string // what must be in them
	}{
		{"an eighth of a millisecond a card is within it", report(2, 125), "", ""},
		{"more is not", report(2, 126), "", "a sample of 8 such GPUs takes 1.008ms of CPU"},
		{"no GPU proves nothing", report(0, 0), "", "nothing was measured"},
		{"a helper that cannot is heard", "echo 'no driver here' >&2; exit 1", "no driver here", ""},
		{"so is one that says something else", "echo hello", "berth-gpu cost printed hello", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			bin := t.TempDir()
			script := "#!/bin/sh\n[ \"$*\" = 'cost -json' ] || exit 9\n" + row.script + "\n"
			if err := os.WriteFile(filepath.Join(bin, "berth-gpu"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			check := &trial{host: &host{bin: bin}}
			err := untilNeed(func() { check.costOfSample(context.Background()) })
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("error %v, want one that says %q", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if wrong := strings.Join(check.wrong, "; "); !strings.Contains(wrong, row.wrong) || (row.wrong == "") != (wrong == "") {
				t.Errorf("wrong is %q, want %q", wrong, row.wrong)
			}
			if want := "the most expensive calls: power 300µs, rows 20µs, memory 5µs"; !slices.Contains(check.figures, want) {
				t.Errorf("figures %q, want %q", check.figures, want)
			}
		})
	}
}
