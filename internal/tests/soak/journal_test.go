package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"berth/internal/tests/testkit"
)

// event is one line of the journal or of --json, as far as it matters here.
type event struct {
	Seq   int64
	Event string
	Text  string
	Job   *struct {
		ID       string
		State    string
		Outcome  *string
		Command  string
		Attempt  int
		ExitCode *int `json:"exit_code"`
		Signal   *string
		Log      *string
	}
	ExitStatus *int `json:"exit_status"`
}

var commandLine = regexp.MustCompile(`job\.sh" (\d+) `)

// line is the number of the jobs-file line the event is about.
func (e event) line() int {
	if e.Job == nil {
		return 0
	}
	found := commandLine.FindStringSubmatch(e.Job.Command)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

func (e event) outcome() string {
	if e.Job == nil || e.Job.Outcome == nil {
		return ""
	}
	return *e.Job.Outcome
}

// parseEvents reads JSON lines. The last one may be cut short where the
// writer was killed.
func parseEvents(text []byte) (events []event, bad []string) {
	complete := text[:bytes.LastIndexByte(text, '\n')+1]
	for row := range bytes.Lines(complete) {
		var e event
		if err := json.Unmarshal(row, &e); err != nil {
			bad = append(bad, err.Error()+": "+string(row))
			continue
		}
		events = append(events, e)
	}
	return events, bad
}

// journal reads the journal of a site. Before there is one, it is empty.
func (s *site) journal() []event {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.logDir, "journal.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	events, bad := parseEvents(text)
	for _, problem := range bad {
		s.t.Errorf("journal: %s", problem)
	}
	return events
}

// endings reads the journal for how each line ended, and checks that its
// numbers rise and that nothing ended twice.
func (s *site) endings() map[int]event {
	s.t.Helper()
	ended := map[int]event{}
	last := int64(0)
	for _, e := range s.journal() {
		if e.Seq <= last {
			s.t.Errorf("journal: event %d comes after %d", e.Seq, last)
		}
		last = e.Seq
		if e.Event != "ended" {
			continue
		}
		n := e.line()
		if earlier, twice := ended[n]; twice {
			s.t.Errorf("line %d ended twice: event %d %s, event %d %s", n, earlier.Seq, earlier.outcome(), e.Seq, e.outcome())
		}
		ended[n] = e
	}
	return ended
}

// mustAgree holds what berth printed against the journal.
func (s *site) mustAgree(printed string, ended map[int]event) {
	s.t.Helper()
	events, bad := parseEvents([]byte(printed))
	for _, problem := range bad {
		s.t.Errorf("--json: %s", problem)
	}
	for _, e := range events {
		// A run whose queue was killed reads from the store how jobs ended.
		sameSeq := e.Seq == 0 || e.Seq == ended[e.line()].Seq
		if e.Event == "ended" && (!sameSeq || ended[e.line()].outcome() != e.outcome()) {
			s.t.Errorf("line %d: printed %d %s, journal has %d %s", e.line(), e.Seq, e.outcome(), ended[e.line()].Seq, ended[e.line()].outcome())
		}
	}
}

// mustHaveWhole checks the log of each attempt to the last byte.
func (s *site) mustHaveWhole(l line, id string, attempts int) {
	s.t.Helper()
	for attempt := 1; attempt <= attempts; attempt++ {
		path := filepath.Join(s.logDir, "jobs", id, strconv.Itoa(attempt)+".log")
		text := testkit.Read(s.t, path)
		begin, end := l.log(attempt)
		between := len(text) - len(begin) - len(end)
		own := l.kind == "sim" || l.kind == "oom"
		if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) || between < 0 || (between > 0 && !own) {
			s.t.Errorf("line %d attempt %d: its log is not what it printed:\n%s", l.number, attempt, text)
		}
	}
}
