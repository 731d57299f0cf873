package jobfile

import (
	"fmt"
	"strconv"
	"strings"

	"berth/internal/text"
)

// checkAfter refuses names and numbers that no line has, names that several lines
// have, and cycles: such a job would wait forever.
func checkAfter(file string, lines []*Line, errs *Errors) {
	needed := false
	for i := range lines {
		needed = needed || len(lines[i].Spec.After) > 0
	}
	if !needed {
		return
	}
	named := Named(lines)
	before := len(errs.Problems)
	next := make([][]int, len(lines)) // next[i]: the lines that line i waits for
	for i := range lines {
		for _, dependency := range lines[i].Spec.After {
			targets := named[dependency.Name]
			if len(targets) == 0 || lines[targets[0]].Number != lines[targets[len(targets)-1]].Number {
				errs.Add(file, lines[i].Number, nameProblem(dependency.Name, targets, lines, named))
				continue
			}
			next[i] = append(next[i], targets...)
		}
	}
	if len(errs.Problems) == before {
		checkCycles(file, lines, next, errs)
	}
}

// Named are the lines that each name means, and each number of a line. The trials of a
// sweep share a line.
func Named(lines []*Line) map[string][]int {
	named, numbered := map[string][]int{}, map[string][]int{}
	for i, line := range lines {
		if line.Spec.Name != "" {
			named[line.Spec.Name] = append(named[line.Spec.Name], i)
		}
		number := strconv.Itoa(line.Number)
		numbered[number] = append(numbered[number], i)
	}
	for number, targets := range numbered { // a name such as 3 counts before line 3
		if len(named[number]) == 0 {
			named[number] = targets
		}
	}
	return named
}

func nameProblem(name string, targets []int, lines []*Line, named map[string][]int) string {
	if len(targets) > 1 {
		return fmt.Sprintf("after: expected a name that only one line has, found %s on lines %d and %d",
			text.Found(name), lines[targets[0]].Number, lines[targets[len(targets)-1]].Number)
	}
	const most = 1000 // candidates: a suggestion is not worth a slow answer
	known := make([]string, 0, min(len(named), most))
	for i := range lines {
		if len(known) < most && lines[i].Spec.Name != "" {
			known = append(known, lines[i].Spec.Name)
		}
	}
	hint := ""
	if near := text.Nearest(name, known); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", text.Found(near))
	}
	return fmt.Sprintf("after: expected the name or the number of another line, found %s%s", text.Found(name), hint)
}

// checkCycles walks the lines depth first, without recursion because a chain
// may be as long as the file. A line met again while it is still on the path
// closes a cycle.
func checkCycles(file string, lines []*Line, next [][]int, errs *Errors) {
	const (
		unseen = iota
		onPath
		done
	)
	mark := make([]uint8, len(lines))
	followed := make([]int, len(lines)) // how many of next[i]
	for start := range lines {
		if mark[start] != unseen {
			continue
		}
		path := []int{start}
		mark[start] = onPath
		for len(path) > 0 {
			at := path[len(path)-1]
			if followed[at] == len(next[at]) {
				mark[at] = done
				path = path[:len(path)-1]
				continue
			}
			to := next[at][followed[at]]
			followed[at]++
			switch mark[to] {
			case unseen:
				mark[to] = onPath
				path = append(path, to)
			case onPath:
				errs.Add(file, lines[at].Number, "after: these lines wait for each other: "+cycle(lines, path, to))
			}
		}
	}
}

// cycle names the lines of a cycle, starting and ending with the one that
// closes it. It shows only the first steps of a long one.
func cycle(lines []*Line, path []int, to int) string {
	const most = 10
	last := len(path) - 1
	from := last
	for path[from] != to {
		from--
	}
	words := []string{step(lines[path[last]])}
	for i := from; i < last && len(words) < most; i++ {
		words = append(words, step(lines[path[i]]))
	}
	if hidden := last - from - (len(words) - 1); hidden > 0 {
		words = append(words, fmt.Sprintf("%d more", hidden))
	}
	return strings.Join(append(words, step(lines[path[last]])), " -> ")
}

func step(line *Line) string {
	if line.Spec.Name == "" {
		return fmt.Sprintf("line %d", line.Number)
	}
	return fmt.Sprintf("%s (line %d)", line.Spec.Name, line.Number)
}
