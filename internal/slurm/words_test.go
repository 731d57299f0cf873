package slurm

import (
	"slices"
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	for _, row := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"  ", nil},
		{"--account=x -q y", []string{"--account=x", "--qos=y"}},
		{"--account x -qy", []string{"--account=x", "--qos=y"}},
		{"-C 'a100&ib' --reservation \"two words\"", []string{"--constraint=a100&ib", "--reservation=two words"}},
		{"--exclusive", []string{"--exclusive"}},
		{"--exclusive=user -sp gpu", []string{"--exclusive=user", "--oversubscribe", "--partition=gpu"}},
		{"-N1 -n 1 --ntasks-per-node=1", []string{"--nodes=1", "--ntasks=1", "--ntasks-per-node=1"}},
		{"--gres=lustre:2", []string{"--gres=lustre:2"}},
		{"--brand-new=1", []string{"--brand-new=1"}},
		{"-x -n3", []string{"--exclude=-n3"}}, // the value of an option, whatever it looks like
	} {
		got, err := Words(row.text)
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%q: %q, %v; want %q", row.text, got, err, row.want)
		}
	}
}

func TestRefusedWords(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"--job-name=x", "berth sets --job-name itself"},
		{"-J x", "berth sets --job-name itself"},
		{"-sJx", "berth sets --job-name itself"},
		{"--job-nam=x", "expected the full name of an option, such as --job-name, found --job-nam"},
		{"--wra=rm", "expected the full name"},
		{"--comment x", "--comment"}, {"--array=1", "--array"}, {"-a1", "--array"}, {"-o f", "--output"}, {"-e f", "--error"}, {"--wrap=x", "--wrap"},
		{"-d afterok:1", "--dependency"}, {"-b now", "--begin"}, {"-H", "--hold"}, {"--export=ALL", "--export"}, {"-D /", "--chdir"}, {"--parsable", "--parsable"},
		{"--requeue", "--requeue"}, {"--uid=0", "--uid"}, {"-N 2", "--nodes"}, {"-N 1-2", "--nodes"}, {"-n 2", "--ntasks"}, {"--ntasks-per-node=2", "--ntasks-per-node"},
		{"-t 10", "--time"}, {"--mem=1G", "--mem"}, {"-c 2", "--cpus-per-task"}, {"-G 1", "--gpus"}, {"--gpus-per-node=1", "--gpus-per-node"}, {"--gres=gpu:1", "--gres=gpu"},
		{"--gres=lustre,gpu:a100:1", "--gres=gpu"}, {"--gres=gres/gpu:1", "--gres=gres/gpu"}, {"--nice", "--nice"}, {"--signal=USR1", "--signal"}, {"--mail-type=END", "--mail-type"}, {"-W", "--wait"}, {"-M all", "--clusters"},
		{"train.sh", "expected an option, found"},
		{"--account=x train.sh", "expected an option, found"},
		{"-- x", "expected an option, found"},
		{"-", "expected an option, found"},
		{": --account=x", "expected an option, found"},
		{"--account", "--account: expected a value, found none"},
		{"--account=", "--account: expected a value, found none"},
		{"-q", "-q: expected a value, found none"},
		{"-z 1", "expected an option of sbatch, found -z"},
		{"--contiguous=yes", "--contiguous: expected no value"},
		{"--brand-new", "berth does not know --brand-new: expected --brand-new=VALUE"},
		{"--brand-new 1", "berth does not know --brand-new"},
		{"--a;b=1", "expected an option, found"},
		{"--account=a\n--uid=0", "control character"},
		{"--account='a", "expected a closing quote"},
		{strings.Repeat("x", 5000), "at most 4096 bytes"},
	} {
		if got, err := Words(row.text); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %q, %v; want an error with %q", row.text, got, err, row.want)
		}
	}
}

func TestEachLetterIsOneOption(t *testing.T) {
	letters := map[byte]string{}
	for name, o := range known {
		if other := letters[o.short]; o.short != 0 && other != "" {
			t.Errorf("-%c: %s and %s", o.short, name, other)
		}
		letters[o.short] = name
		if strings.HasSuffix(o.instead, ".") {
			t.Errorf("%s: %q ends with a full stop", name, o.instead)
		}
	}
}

// FuzzWords: whatever is accepted is accepted again, and is options alone.
func FuzzWords(f *testing.F) {
	for _, text := range []string{"--account=x -q y", "-sp gpu", "--a'b c'=\"d\"", "-x -y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		options, err := Words(text)
		if err != nil {
			return
		}
		for _, option := range options {
			name, value, attached := strings.Cut(option, "=")
			if !strings.HasPrefix(name, "--") || attached && value == "" || strings.ContainsAny(option, "\n\x00") {
				t.Fatalf("%q: %q", text, option)
			}
			if o := known[name[2:]]; o.instead != "" && !(o.one && value == "1") {
				t.Fatalf("%q: %q", text, option)
			}
		}
	})
}
