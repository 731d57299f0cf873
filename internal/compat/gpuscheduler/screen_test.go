package gpuscheduler

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
)

// seeds: S31
func TestASessionIsNamedAfterCardsModeAndJob(t *testing.T) {
	rows := []struct {
		gpus  string
		words []string
		want  string
	}{
		{"0,1", []string{"--mode", "train"}, "gpujob_0,1_train_1a2b3c4d"},
		{"3", []string{"--mode=eval", "--x"}, "gpujob_3_eval_1a2b3c4d"},
		{"3", []string{"--mode", "a", "--mode=b"}, "gpujob_3_b_1a2b3c4d"},
		{"3", []string{"--model", "big"}, "gpujob_3_unknown_1a2b3c4d"},
		{"3", []string{"--mode"}, "gpujob_3_unknown_1a2b3c4d"},
		{"3", []string{"--mode", "../a b;$(rm)"}, "gpujob_3_a_b_rm_1a2b3c4d"},
		{"0", []string{"--mode", "fine_tune"}, "gpujob_0_fine_tune_1a2b3c4d"},
		{"", nil, "gpujob_none_unknown_1a2b3c4d"},
	}
	for _, row := range rows {
		argv := screenCommand("/bin/berth", modeOf(row.words), "1a2b3c4d", append([]string{"python"}, row.words...))
		if diff := cmp.Diff(append([]string{"--", "python"}, row.words...), argv[4:]); diff != "" {
			t.Error(diff)
		}
		if got := sessionName(row.gpus, argv[2], argv[3]); got != row.want {
			t.Errorf("%v: %s, want %s", row.words, got, row.want)
		}
	}
	many := strings.TrimSuffix(strings.Repeat("1023,", 64), ",")
	if got := sessionName(many, namePart(strings.Repeat("m", 300)), "1a2b3c4d"); len(got) > 76 || !strings.Contains(got, ",1023_m") {
		t.Errorf("%d bytes do not fit a socket's address, or a card is cut: %s", len(got), got)
	}
}

// seeds: S26
func TestSessionsAreReadFromWhatScreenSays(t *testing.T) {
	const said = "There are screens on:\n" +
		"\t101.gpujob_0,1_train_1a2b3c4d\t(11/15/26 14:51:46)\t(Detached)\n" +
		"\t102.gpujob_2_my_mode_feedbeef\t(Attached)\n" +
		"\t103.gpujob_3_unknown_00000000\t(11/15/26 14:51:46)\t(Dead ???)\n" +
		"\t104.pts-0.host\t(11/15/26 14:51:46)\t(Detached)\n" +
		"\t105.gpujob_4_x_0badcafe\t(11/15/26 14:51:46)\t(Multi, attached)\n" +
		"5 Sockets in /run/screen/S-root.\n"
	want := []screenSession{
		{"gpujob_0,1_train_1a2b3c4d", 101, "detached", "0,1", "train", "1a2b3c4d", "screen -r gpujob_0,1_train_1a2b3c4d"},
		{"gpujob_2_my_mode_feedbeef", 102, "attached", "2", "my_mode", "feedbeef", "screen -r gpujob_2_my_mode_feedbeef"},
		{"gpujob_4_x_0badcafe", 105, "attached", "4", "x", "0badcafe", "screen -r gpujob_4_x_0badcafe"},
	}
	if diff := cmp.Diff(want, readSessions(said, "")); diff != "" {
		t.Error(diff)
	}
	if got := readSessions(said, "SCREENDIR=/s "); got[0].Attach != "SCREENDIR=/s screen -r gpujob_0,1_train_1a2b3c4d" {
		t.Error(got[0].Attach)
	}
}

func TestOfAScreenrcOnlyWhatConcernsSittingIsTaken(t *testing.T) {
	own := filepath.Join(t.TempDir(), "screenrc")
	os.WriteFile(own, []byte("escape ^Jj\nscreen -t top top\nzombie kr\nsessionname mine\n  hardstatus alwayslastline\n"), 0o644)
	t.Setenv("SCREENRC", own)
	config := screenConfig()
	for _, unwanted := range []string{"top", "kr", "mine"} {
		if strings.Contains(config, unwanted) {
			t.Errorf("%q is in\n%s", unwanted, config)
		}
	}
	for _, wanted := range []string{"escape ^Jj\n", "hardstatus alwayslastline\n"} {
		if !strings.Contains(config, wanted) {
			t.Errorf("%q is missing from\n%s", wanted, config)
		}
	}
}

func add(args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	c := call{&frontend.Call{Name: "gpu-scheduler", Args: args, Out: &stdout, Err: &stderr}}
	code = runAdd(c, args)
	return code, stdout.String(), stderr.String()
}

// seeds: S20
func TestWhatIsAddedIsReadBackAsTheSameJob(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab ,\"'\\#=-\t\né")))
		want := jobfile.CSVJob{
			Priority: rapid.IntRange(-5, 5).Draw(t, "priority"), Script: text.Draw(t, "script"),
			Conda: text.Draw(t, "conda"), Arguments: text.Draw(t, "arguments"),
		}
		file := filepath.Join(dir, "jobs.txt")
		if err := os.WriteFile(file, []byte(rapid.SampledFrom([]string{"", "7,old.py\n", "7,old.py"}).Draw(t, "before")), 0o644); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(file)
		code, _, said := add("--conda", want.Conda, "--args", want.Arguments, "--priority", strconv.Itoa(want.Priority),
			"--gpus", "2,0-1", "--output-file", file, "--", want.Script)
		after, _ := os.ReadFile(file)
		if code != 0 {
			if want.Check() == nil {
				t.Fatalf("refused: %s", said)
			}
			if !bytes.Equal(before, after) {
				t.Fatalf("refused, and written: %q", after)
			}
			return
		}
		jobs, err := jobfile.ParseCSV("jobs.txt", after)
		if err != nil {
			t.Fatalf("%v in %q", err, after)
		}
		got := jobs[len(jobs)-1]
		want.Line, want.Words, want.Allow = got.Line, got.Words, []int{0, 1, 2}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s in %q", diff, after)
		}
		if len(before) > 0 && (len(jobs) != 2 || jobs[0].Script != "old.py") {
			t.Fatalf("what was there is not as it was: %q", after)
		}
	})
}

// seeds: S20
func TestManyAddAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.txt")
	os.WriteFile(file, []byte("0,old.py"), 0o644)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { add("new.py", "--output-file", file) })
	}
	all.Wait()
	text, _ := os.ReadFile(file)
	if want := "0,old.py\n" + strings.Repeat("0,new.py\n", 20); string(text) != want {
		t.Errorf("got %q", text)
	}
}

// seeds: S15
func TestAnEmptyEnvironmentIsTheBaseOneOrThePythonThatIsThere(t *testing.T) {
	work := t.TempDir()
	touch := func(path string) {
		os.MkdirAll(filepath.Dir(filepath.Join(work, path)), 0o755)
		os.WriteFile(filepath.Join(work, path), []byte("#!/bin/sh\n"), 0o755)
	}
	touch("three/python3")
	touch("both/python3")
	touch("both/python")
	touch("conda/condabin/conda")
	touch("conda/etc/profile.d/conda.sh")
	touch("home/miniconda3/etc/profile.d/conda.sh")
	if _, err := os.Stat("/opt/conda"); err == nil {
		t.Skip("this machine has a conda of its own")
	}
	rows := []struct {
		path, exe, home, named string
		conda, python          string
	}{
		{path: "both", home: "none", python: "python"},
		{path: "three", home: "none", python: "python3"},
		{path: "empty", home: "none", python: "python"},
		{path: "three", home: "home", conda: "base", python: "python"},
		{path: "conda/condabin", home: "none", conda: "base", python: "python"},
		{path: "three", home: "none", exe: "conda/bin/conda", conda: "base", python: "python"},
		{path: "three", home: "none", exe: "gone/bin/conda", python: "python3"},
		{path: "three", home: "none", named: "vision", conda: "vision", python: "python"},
	}
	for _, row := range rows {
		t.Setenv("PATH", filepath.Join(work, row.path))
		t.Setenv("HOME", filepath.Join(work, row.home))
		t.Setenv("CONDA_EXE", "")
		if row.exe != "" {
			t.Setenv("CONDA_EXE", filepath.Join(work, row.exe))
		}
		got, note := baseEnvironment(job.Spec{Conda: row.named, Argv: []string{"python", "-u", "a.py"}})
		if got.Conda != row.conda || got.Argv[0] != row.python || (note != "") != (row.python == "python3") {
			t.Errorf("%+v: conda %q, %v, note %q", row, got.Conda, got.Argv, note)
		}
	}
}

func TestASessionRunsTheWordsAndTheEnvironmentByteForByte(t *testing.T) {
	for _, want := range []insideCommand{
		{Words: []string{"python", "", "a b\n", "\xff"}, Env: []string{"A=", "B=1=2", "C=\xff\n"}},
		{Words: []string{"true"}, Env: []string{}},
	} {
		got, err := parseInside(want.text())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	for _, text := range []string{"", "x", "0\x00", "2\x00true"} {
		if got, err := parseInside([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
