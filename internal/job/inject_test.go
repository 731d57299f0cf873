package job

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// seeds: S17
func TestInjected(t *testing.T) {
	for _, row := range []struct{ says, argv, inject, want string }{
		{"the flag is appended", "python -u a.py --x 1", "--cuda=physical", "python -u a.py --x 1 --cuda 1,3"},
		{"or takes the place of the value", "python a.py --cuda 0 --x", "--cuda=physical", "python a.py --cuda 1,3 --x"},
		{"also after =", "python a.py --cuda=0,1 --x", "--cuda=physical", "python a.py --cuda=1,3 --x"},
		{"wherever it stands", "a --cuda 0 --cuda=2 --cuda", "--cuda=physical", "a --cuda 1,3 --cuda=1,3 --cuda 1,3"},
		{"a flag after it is no value of it", "a --cuda --x", "--cuda=physical", "a --cuda 1,3 --x"},
		{"a negative number is", "a --cuda -1 --x", "--cuda=physical", "a --cuda 1,3 --x"},
		{"a longer flag is another", "a --cuda-arch 8 --cudas=1", "--cuda=physical", "a --cuda-arch 8 --cudas=1 --cuda 1,3"},
		{"the program is no flag", "--cuda", "--cuda=physical", "--cuda --cuda 1,3"},
		{"as the job counts them", "a --gpus x", "--gpus=local", "a --gpus 0,1"},
		{"a flag of one dash", "a", "-g=local", "a -g 0,1"},
		{"nothing is asked for", "a --cuda 0", "", "a --cuda 0"},
	} {
		argv := strings.Fields(row.argv)
		before := slices.Clone(argv)
		got := Spec{Argv: argv, Inject: row.inject}.Injected([]int{3, 1})
		if strings.Join(got.Argv, " ") != row.want {
			t.Errorf("%s: %q", row.says, got.Argv)
		}
		if !slices.Equal(argv, before) {
			t.Errorf("%s: the spec itself became %q", row.says, argv)
		}
	}
	if got := (Spec{Shell: "python a.py \n", Inject: "--cuda=physical"}).Injected([]int{2, 0}); got.Shell != "python a.py --cuda 0,2" {
		t.Errorf("shell line: %q", got.Shell)
	}
	cpu := Spec{Argv: []string{"a", "--cuda", "0"}, Inject: "--cuda=physical"}
	if got := cpu.Injected(nil); !reflect.DeepEqual(got, cpu) {
		t.Errorf("without a card: %+v", got)
	}
}
