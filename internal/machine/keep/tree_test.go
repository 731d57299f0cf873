package keep

import "testing"

func TestWhenATreeStandsStill(t *testing.T) {
	t.Parallel()
	process := func(pid, parent int, state byte) Process {
		return Process{PID: pid, Parent: parent, State: state, Threads: 1}
	}
	rows := []struct {
		name string
		tree []Process
		want bool
	}{
		{"nothing is left", nil, true},
		{"all are stopped, traced or dead", []Process{process(2, 1, 'T'), process(3, 2, 't'), process(4, 2, 'Z')}, true},
		{"one still runs", []Process{process(2, 1, 'T'), process(3, 2, 'R')}, false},
		{"one sleeps, and has not heard of it", []Process{process(2, 1, 'S')}, false},
		{"one waits for the child it lends its memory to, which is stopped", []Process{process(2, 1, 'D'), process(3, 2, 'T')}, true},
		{"one waits for a child that waits for its own", []Process{process(2, 1, 'D'), process(3, 2, 'D'), process(4, 3, 'T')}, true},
		{"one waits for that child, which still runs", []Process{process(2, 1, 'D'), process(3, 2, 'R')}, false},
		{"one waits for something else, perhaps in the middle of a fork", []Process{process(2, 1, 'D'), process(3, 1, 'T')}, false},
	}
	for _, row := range rows {
		if got := standStill(row.tree); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
