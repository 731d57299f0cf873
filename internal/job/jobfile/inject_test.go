package jobfile

import (
	"strings"
	"testing"

	"berth/internal/job"
)

func TestInjectIsAFlagAndWhatItIsTold(t *testing.T) {
	for value, want := range map[string]string{
		"--cuda=physical": "--cuda=physical", "--cuda=LOCAL": "--cuda=local", "-g=local": "-g=local", "no": "", "--trainer.devices=local": "--trainer.devices=local",
	} {
		if got, err := parseInject(value); err != nil || got != want {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
	for _, value := range []string{
		"", "--cuda", "--cuda=", "--cuda=both", "cuda=physical", "--=local", "=local", "--a b=local", "--a;b=local", "--a$(x)=local", "--a=b=local", "--" + strings.Repeat("a", 64) + "=local",
	} {
		if got, err := parseInject(value); err == nil {
			t.Errorf("%q was taken, as %q", value, got)
		}
	}
}

func TestAFlagIsPutBehindWhatTakesIt(t *testing.T) {
	for _, line := range []string{
		"python a.py", "cd x && python a.py --y 1", "a; b c", "a || b", `a "x | y" 'z # w'`, "a > log 2>&1", "a >| log", `a \| b`, "a x#y", "A=1 python a.py", "a --cudas 1 --cuda-x", "a `b`", "(cd x; a); b",
	} {
		if err := CheckInject(&job.Spec{Shell: line, Inject: "--cuda=physical"}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for line, want := range map[string]string{
		"a | tee log": "a pipe", "a |& tee log": "a pipe", "a # why": "a comment", "a;# why": "a comment", "a &": "an open end", "a;": "an open end", "(cd x; a)": "an open end",
		"{ a; }": "an open end", "for i in 1 2; do a $i; done": "an open end", "a <<E": "an open end", `a "b`: "an open end", "if x; then a; fi": "an open end",
		"a --cuda 0": "expected a shell line without --cuda, found --cuda in it", "a --cuda=0": "found --cuda", "sh -c 'a --cuda 1'": "found --cuda", "a;b --cuda": "found --cuda",
	} {
		spec := job.Spec{Shell: line, Inject: "--cuda=physical"}
		if err := CheckInject(&spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
		if spec.Inject = ""; CheckInject(&spec) != nil {
			t.Errorf("%s: refused although nothing is put behind it", line)
		}
	}
	if err := CheckInject(&job.Spec{Argv: []string{"a", "--cuda", "0", "|"}, Inject: "--cuda=physical"}); err != nil {
		t.Errorf("words: %v", err)
	}
	if _, err := Parse("f", []byte("[inject_gpus=--cuda=local] a --cuda 0"), job.Defaults()); err == nil {
		t.Error("a line of a jobs file that has the flag was taken")
	}
	if _, err := ParseSpecs("f.yaml", []byte("command: a | b\ninject_gpus: --cuda=local")); err == nil {
		t.Error("a spec with a pipe was taken")
	}
	if items, err := ParseSpecs("f.yaml", []byte("command: [a, --cuda, '0']\ninject_gpus: --cuda=local")); err != nil || len(items) != 1 {
		t.Errorf("a spec of words: %v", err)
	}
}
