package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBadUsageExitsTwo(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"an expression that does not compile", []string{"-run", "("}, "-run:"},
		{"a word that is not a flag", []string{"discovery"}, `unexpected argument "discovery"`},
		{"a flag that does not exist", []string{"-fast"}, "-fast"},
		{"a check that does not exist", []string{"-sim", "-bin", "", "-run", "nonesuch"}, "no check matches"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			if args[0] == "-sim" {
				args[2] = bundle
			}
			var out, errs bytes.Buffer
			if code := run(args, &out, &errs); code != 2 || !strings.Contains(errs.String(), test.want) {
				t.Errorf("exit %d: %s", code, &errs)
			}
		})
	}
}

func TestHelpAndListExitZero(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-h"}, &out, &errs); code != 0 || !strings.Contains(errs.String(), "Example: ./gpu-test -run") {
		t.Errorf("exit %d: %s", code, &errs)
	}
	if code := run([]string{"-list"}, &out, &errs); code != 0 || strings.Count(out.String(), "\n") != len(checks) {
		t.Errorf("exit %d: %s", code, &out)
	}
}

func TestARowHasItsReasonsBeforeItsFigures(t *testing.T) {
	r := result{Check: "oom", Result: failed, Seconds: 1.25, Why: []string{"it is\nexit:1"}, Figures: []string{"declared 10"}}
	want := "oom                FAIL     1.2s  it is / exit:1\n" + strings.Repeat(" ", 34) + "declared 10\n"
	if got := r.row(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyWhatIsNotKnownIsSkipped(t *testing.T) {
	var why skip
	if err := unknown(&refusal{what: "submit", said: "berth: unknown flag: --pin", err: errors.New("exit status 2")}); !errors.As(err, &why) {
		t.Errorf("an unknown flag: %v", err)
	}
	if err := unknown(&refusal{what: "submit", said: "berth: no room", err: errors.New("exit status 1")}); errors.As(err, &why) {
		t.Errorf("a refusal: %v", err)
	}
}

func TestListsOfCPUsAreThoseOfTheKernel(t *testing.T) {
	cpus, err := cpuList("0-2,8\n")
	if err != nil || len(cpus) != 4 || !cpus[1] || !cpus[8] || cpus[3] {
		t.Errorf("%v %v", cpus, err)
	}
	for _, bad := range []string{"", "a", "3-1", "0-999999999"} {
		if _, err := cpuList(bad); err == nil {
			t.Errorf("%q is taken for a list", bad)
		}
	}
}

func TestTimesAreThoseOfTheChildren(t *testing.T) {
	took, err := timesOfChildren("Terminated\n0m0.01s 0m0.02s\n0m3.5s 0m0.25s\n")
	if err != nil || took != 3750*time.Millisecond {
		t.Errorf("%v %v", took, err)
	}
	if _, err := timesOfChildren("no times"); err == nil {
		t.Error("rubbish is taken for times")
	}
}

func TestQuantilesAreOfWhatWasSeen(t *testing.T) {
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(100-i))
	}
	if median(took) != 51 || quantile(took, 0.99) != 100 || quantile(nil, 0.5) != 0 {
		t.Errorf("median %d, p99 %d", median(took), quantile(took, 0.99))
	}
}
