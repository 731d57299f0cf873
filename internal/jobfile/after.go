package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// checkAfter refuses names that lead nowhere, to several lines, or in a
// circle: such a job would wait for ever.
func checkAfter(file string, lines []*Line, errs *Errors) {
	needed := false
	for i := range lines {
		needed = needed || len(lines[i].Spec.After) > 0
	}
	if !needed {
		return
	}
	named := map[string][]int{}
	for i := range lines {
		if name := lines[i].Spec.Name; name != "" {
			named[name] = append(named[name], i)
		}
	}
	before := len(errs.Problems)
	next := make([][]int, len(lines)) // next[i]: the lines that line i waits for
	for i := range lines {
		for _, dependency := range lines[i].Spec.After {
			targets := named[dependency.Name]
			if len(targets) != 1 {
				errs.add(file, lines[i].Number, nameProblem(dependency.Name, targets, lines, named))
				continue
			}
			next[i] = append(next[i], targets[0])
		}
	}
	if len(errs.Problems) == before {
		checkCircles(file, lines, next, errs)
	}
}

func nameProblem(name string, targets []int, lines []*Line, named map[string][]int) string {
	if len(targets) > 1 {
		return fmt.Sprintf("after: found name %s on lines %d and %d, allowed a name that one line has",
			text.Found(name), lines[targets[0]].Number, lines[targets[1]].Number)
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
	return fmt.Sprintf("after: found unknown name %s%s, allowed the name of another line", text.Found(name), hint)
}

// checkCircles walks the lines depth first, without recursion because a chain
// may be as long as the file. A line met again while it is still on the path
// closes a circle.
func checkCircles(file string, lines []*Line, next [][]int, errs *Errors) {
	const (
		unseen = iota
		onPath
		done
	)
	mark := make([]uint8, len(lines))
	step := make([]int, len(lines)) // how many of next[i] were followed
	for start := range lines {
		if mark[start] != unseen {
			continue
		}
		path := []int{start}
		mark[start] = onPath
		for len(path) > 0 {
			at := path[len(path)-1]
			if step[at] == len(next[at]) {
				mark[at] = done
				path = path[:len(path)-1]
				continue
			}
			to := next[at][step[at]]
			step[at]++
			switch mark[to] {
			case unseen:
				mark[to] = onPath
				path = append(path, to)
			case onPath:
				errs.add(file, lines[at].Number, "after: found a circle: "+circle(lines, path, to)+", allowed no line that waits for itself")
			}
		}
	}
}

// circle tells the way round, from the line that closes it back to itself.
// Of a long one only the first steps are shown.
func circle(lines []*Line, path []int, to int) string {
	const most = 10
	last := len(path) - 1
	from := last
	for path[from] != to {
		from--
	}
	words := []string{stop(lines[path[last]])}
	for i := from; i < last && len(words) < most; i++ {
		words = append(words, stop(lines[path[i]]))
	}
	if hidden := last - from - (len(words) - 1); hidden > 0 {
		words = append(words, fmt.Sprintf("%d more", hidden))
	}
	return strings.Join(append(words, stop(lines[path[last]])), " -> ")
}

func stop(line *Line) string { return fmt.Sprintf("%s (line %d)", line.Spec.Name, line.Number) }
