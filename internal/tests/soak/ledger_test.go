package soak

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// run is one attempt as the job itself wrote it down.
type run struct {
	line, attempt int
	cards         []string
	starts, ends  int
	printed       bool // all rows of its log
	code          int  // of its last end
}

// books are what the jobs wrote.
type books struct {
	runs     map[[2]int]*run // by line and attempt
	overlaps []string
	words    [][]string
}

// read takes in the ledger, and checks on the way that whoever has to be
// alone on a card is.
func (s *site) read(lines []line) books {
	s.t.Helper()
	b := books{runs: map[[2]int]*run{}}
	text, err := os.ReadFile(filepath.Join(s.dir, "ledger"))
	if err != nil {
		s.t.Fatal(err)
	}
	for row := range strings.Lines(string(text)) {
		words := strings.Fields(row)
		b.words = append(b.words, words)
		if words[0] == "overlap" {
			b.overlaps = append(b.overlaps, strings.TrimSpace(row))
			continue
		}
		number, _ := strconv.Atoi(words[1])
		attempt, _ := strconv.Atoi(words[2])
		r := b.runs[[2]int{number, attempt}]
		if r == nil {
			r = &run{line: number, attempt: attempt}
			b.runs[[2]int{number, attempt}] = r
		}
		switch words[0] {
		case "printed":
			r.printed = true
		case "start":
			r.starts++
			if words[4] != "-" {
				r.cards = strings.Split(words[4], ",")
			}
		case "end":
			r.ends++
			r.code, _ = strconv.Atoi(words[3])
		}
	}
	return b
}

// mustBeSound checks what has to hold whoever was killed: nothing ran twice,
// and no card had two jobs of which one had to be alone.
func (s *site) mustBeSound(lines []line) books {
	s.t.Helper()
	b := s.read(lines)
	for _, text := range b.overlaps {
		s.t.Errorf("%s: another process holds that card", text)
	}
	for _, r := range b.runs {
		l := lines[r.line-1]
		if r.starts != 1 || r.ends > 1 {
			s.toll.twice++
			s.t.Errorf("line %d attempt %d: started %d times, ended %d times", r.line, r.attempt, r.starts, r.ends)
		}
		cards := slices.Clone(r.cards)
		slices.Sort(cards)
		if len(slices.Compact(cards)) != l.cards {
			s.t.Errorf("line %d attempt %d ran on cards %v; it asked for %d", r.line, r.attempt, r.cards, l.cards)
		}
	}
	s.checkNeighbours(lines, b)
	return b
}

// cardMiB is what a simulated card has.
const cardMiB = 24576

// checkNeighbours walks the ledger in order. It sees less than the locks do,
// since it knows no process but the main one; it needs no lock to be right.
func (s *site) checkNeighbours(lines []line, b books) {
	s.t.Helper()
	on := map[string]map[int]bool{} // card to the lines on it
	for _, words := range b.words {
		number, _ := strconv.Atoi(words[1])
		attempt, _ := strconv.Atoi(words[2])
		r := b.runs[[2]int{number, attempt}]
		if r == nil || r.ends == 0 {
			continue // it was ended from outside, at a moment it could not tell
		}
		for _, card := range r.cards {
			if on[card] == nil {
				on[card] = map[int]bool{}
			}
			switch words[0] {
			case "start":
				needMiB := lines[number-1].needMiB
				for other := range on[card] {
					needMiB += lines[other-1].needMiB
					if lines[number-1].alone || lines[other-1].alone {
						s.t.Errorf("lines %d and %d were on card %s together", number, other, card)
					}
				}
				if needMiB > cardMiB {
					s.t.Errorf("line %d came to card %s, where with it %d MiB are promised", number, card, needMiB)
				}
				on[card][number] = true
			case "end":
				delete(on[card], number)
			}
		}
	}
}

// reportLost fails the test for a job that was taken and did not come to a known end.
func (s *site) reportLost(format string, args ...any) {
	s.t.Helper()
	s.toll.lost++
	s.t.Errorf(format, args...)
}

// wrote reports whether a job made this entry.
func (s *site) wrote(words ...string) bool {
	text, err := os.ReadFile(filepath.Join(s.dir, "ledger"))
	if err != nil {
		s.t.Fatal(err)
	}
	want := strings.Join(words, " ")
	for row := range strings.Lines(string(text)) {
		if row == want+"\n" || strings.HasPrefix(row, want+" ") {
			return true
		}
	}
	return false
}
