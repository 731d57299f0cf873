package jobfile

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"berth/internal/job"
)

// FuzzParse holds what is true of every file: nothing panics, what is
// accepted is within bounds and reads the same again, and every error names
// a line of the file.
func FuzzParse(f *testing.F) {
	for _, row := range broken {
		f.Add([]byte(row.text))
	}
	f.Add([]byte("[name=a after=b env.X='1 2'] one\n[ -f x ] && two\n[[ x ]]\n[name=b] three"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("f", text, job.Defaults())
		var errs *Errors
		if err != nil {
			if !errors.As(err, &errs) || len(errs.Problems) == 0 || len(errs.Problems) > maxProblems {
				t.Fatalf("%#v", err)
			}
			for _, p := range errs.Problems {
				if p.Line < 1 || p.Line > bytes.Count(text, []byte("\n"))+1 {
					t.Fatalf("line %d of %q", p.Line, text)
				}
			}
		}
		keys := map[string]bool{}
		last := 0
		for _, line := range file.Lines {
			if line.Number <= last || line.Command == "" || line.Spec.Shell != line.Command || keys[line.Key] {
				t.Fatalf("%+v", line)
			}
			if strings.ContainsAny(line.Command, "\n\x00") || strings.Trim(line.Command, " \t\r") != line.Command {
				t.Fatalf("command %q", line.Command)
			}
			if line.Spec.GPUs < 0 || line.Spec.GPUs > maxGPUs || line.Spec.Share < 0 || line.Spec.Share >= 1 || line.Spec.VRAMMiB < 0 {
				t.Fatalf("%+v", line.Spec)
			}
			keys[line.Key], last = true, line.Number
			if OpensBlock(line.Command) {
				continue // a command that starts with a block of its own reads differently without the first
			}
			again, err := Parse("f", []byte(line.Command), job.Defaults())
			if err != nil || len(again.Lines) != 1 || again.Lines[0].Command != line.Command {
				t.Fatalf("%q alone: %v, %+v", line.Command, err, again.Lines)
			}
		}
	})
}
