package daemon

import (
	"testing"

	"berth/internal/job"
	"berth/internal/job/jobfile"
)

// TestWhichLineAStoredJobIs: what a line executes and its file decide, not what it
// needs. An older berth stored no file, and its keys left the block out.
func TestWhichLineAStoredJobIs(t *testing.T) {
	t.Parallel()
	line := func(text string) *jobfile.Line {
		file, err := jobfile.Parse("f", []byte(text), job.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		return file.Lines[len(file.Lines)-1]
	}
	stored := func(l *jobfile.Line, batch string) *job.Job {
		spec := l.Spec
		spec.Batch = batch
		return &job.Job{Key: l.Key, Spec: spec}
	}
	old := func(text string, occurrence int) *job.Job {
		l := line(text)
		j := stored(l, "")
		j.Key = jobfile.Key(l.Command, occurrence)
		return j
	}
	const another = "[env.SEED=1] run\n[env.SEED=2] run"
	for name, test := range map[string]struct {
		row     *job.Job
		line    string
		anyFile bool
		same    bool
	}{
		"the same line":                               {row: stored(line("run"), "../f"), line: "run", same: true},
		"its name and needs are others":               {row: stored(line("[name=a gpus=2 priority=3] run"), "../f"), line: "[vram=3G] run", same: true},
		"another file":                                {row: stored(line("run"), "../g"), line: "run"},
		"another file, as gpusched":                   {row: stored(line("run"), "../g"), line: "run", anyFile: true, same: true},
		"a variable has another value":                {row: stored(line("[env.SEED=1] run"), "../f"), line: "[env.SEED=2] run"},
		"the variables are in another order":          {row: stored(line("[env.A=1 env.B=2] run"), "../f"), line: "[env.B=2 env.A=1] run", same: true},
		"another directory":                           {row: stored(line("[dir=a] run"), "../f"), line: "[dir=b] run"},
		"another virtual environment":                 {row: stored(line("[venv=a] run"), "../f"), line: "run"},
		"another conda environment":                   {row: stored(line("run"), "../f"), line: "[conda=a] run"},
		"another set-up":                              {row: stored(line("[setup=a] run"), "../f"), line: "[setup=b] run"},
		"another flag for its GPUs":                   {row: stored(line("[inject_gpus=--gpu=local] run"), "../f"), line: "run"},
		"an older berth's line":                       {row: old("run", 1), line: "run", same: true},
		"an older berth's line with a variable":       {row: old("[env.SEED=1] run", 1), line: "[env.SEED=1] run", same: true},
		"an older berth's line with another variable": {row: old("[env.SEED=1] run", 1), line: "[env.SEED=2] run"},
		"an older berth's line, now without":          {row: old("[env.SEED=1] run", 1), line: "run"},
		"an older berth's second line":                {row: old(another, 2), line: another, same: true},
	} {
		known := identities{batch: "../f", anyFile: test.anyFile}
		if same := known.key(test.row) == line(test.line).Key; same != test.same {
			t.Errorf("%s: the same job: %t", name, same)
		}
	}
}
