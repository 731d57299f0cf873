package top

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/job"
)

// How often things are asked for, at most. Events say when the queue changed.
const (
	tickEvery    = time.Second
	gpusEvery    = 2 * time.Second
	queueEvery   = 15 * time.Second // if no event came
	jobEvery     = 5 * time.Second
	samplesEvery = 5 * time.Second // of one GPU, in turn
	whyAge       = time.Minute     // how long an expected start is shown
	samplesSpan  = 30 * time.Minute
	noticeFor    = 10 * time.Second

	maxRows     = 200  // jobs that are asked for
	maxLogLines = 2000 // of the selected job
	maxLogLine  = 4096 // bytes
	maxPrompt   = 100
)

// Screen describes the terminal that frames are drawn for.
type Screen struct {
	Width, Height int
	Colour, ASCII bool
}

// model is everything that a frame shows.
type model struct {
	Screen
	now time.Time
	me  string

	gpus          []api.GPU
	utilisation   map[int][]float64 // utilisation of each GPU, the latest last
	page          api.JobPage
	shown         api.Query // the question that page answers
	keptSelection bool      // the selected job is not on page
	rows          []job.View
	lostSince     time.Time // when the daemon stopped answering; zero: it answers
	lostErr       string

	onGPUs     bool // the keys move among GPUs, not jobs
	gpuAt      int
	at         int
	selectedID string // id of the selected job
	scroll     int    // first row that is shown
	filter     string
	own        bool
	ended      bool // those that have ended are shown too
	sortBy     int
	starts     map[string]start // expected starts of queued jobs
	detail     *api.Detail
	why        *api.Why
	samples    *api.Samples
	log        logView

	mode     mode
	helpAt   int // the first key that is shown
	prompt   string
	ask      question
	notice   string
	noticeAt time.Time

	dirty                             bool // the queue changed since it was asked for
	askingQueue, askingGPUs           bool
	queueAt, gpusAt, jobAt, samplesAt time.Time
	samplesTurn                       int
}

type mode int

const (
	normal    mode = iota
	filtering      // a filter is being typed
	asking         // a question is to be answered
	reading        // the log has the whole screen
	searching      // a search in it is being typed
	helping        // the keys are listed
)

// question is asked before a command; y runs it.
type question struct {
	text  string
	onYes command
}

// start is when a queued job is expected to start.
type start struct {
	expected time.Time // zero: not known
	at       time.Time // when it was asked for
}

// sorts are the orders of the jobs.
var sorts = []struct {
	name string
	less func(a, b job.View) int
}{
	{"queue", nil},
	{"memory", func(a, b job.View) int { return cmp.Compare(memory(b), memory(a)) }},
	{"submitted", func(a, b job.View) int { return later(a.SubmittedAt).Compare(later(b.SubmittedAt)) }},
	{"user", func(a, b job.View) int { return strings.Compare(a.User, b.User) }},
	{"name", func(a, b job.View) int { return strings.Compare(a.Name, b.Name) }},
}

func later(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// memory is the most that a job used or declared on a GPU.
func memory(v job.View) (mib int64) {
	if mib = render.PeakOf(&v); mib == 0 && v.VRAMMiB != nil {
		mib = *v.VRAMMiB
	}
	return mib
}

// newModel is a model before anything was asked.
func newModel(s Screen, now time.Time) model {
	return model{Screen: s, now: now, utilisation: map[int][]float64{}, starts: map[string]start{}}
}

// query is the part of the queue that is shown.
func (m model) query() api.Query {
	q := api.Query{Queue: true, Over: m.ended, Reasons: true, Arrays: true, Batches: m.filter == "", Limit: maxRows}
	if m.own {
		q.User = m.me
	}
	if m.filter != "" {
		q.Name = "*" + m.filter + "*"
	}
	return q
}

// arrange sorts the rows and keeps the selected job selected. With keep, it stays
// even if it is not among the rows any more (it ended, or moved behind the last one
// that was asked for): the next key must not act on another job.
func (m *model) arrange(keep bool) {
	was, had := m.selected()
	rows := slices.Clone(m.page.Jobs)
	if less := sorts[m.sortBy].less; less != nil {
		slices.SortStableFunc(rows, less)
	}
	one, folded := m.folded(was)
	at := slices.IndexFunc(rows, func(v job.View) bool { return v.ID == m.selectedID })
	if at < 0 && had && folded { // another of its jobs is shown now
		at = slices.IndexFunc(rows, func(v job.View) bool {
			other, ok := m.folded(v)
			return ok && other.Array == one.Array && other.File == one.File && other.User == one.User
		})
	}
	m.keptSelection = at < 0 && had && keep
	if m.keptSelection {
		if m.detail != nil {
			was = m.detail.View
		}
		at = min(m.at, len(rows))
		rows = slices.Insert(rows, at, was)
	}
	m.rows = rows
	if at >= 0 {
		m.at = at
	}
	m.gpuAt = max(0, min(m.gpuAt, len(m.gpus)-1))
}

// choose selects a row and asks for that job's details.
func (m *model) choose(at int) []command {
	m.at = max(0, min(at, len(m.rows)-1))
	if rows := m.layout().rows; rows > 0 {
		m.scroll = min(max(m.scroll, m.at-rows+1), m.at)
	}
	id := ""
	if len(m.rows) > 0 {
		id = m.rows[m.at].ID
	}
	if id == m.selectedID {
		return nil
	}
	m.selectedID, m.detail, m.why, m.samples, m.log, m.keptSelection = id, nil, nil, nil, logView{}, false
	if id == "" {
		return []command{{Kind: followLog}}
	}
	m.jobAt = m.now
	return []command{{Kind: loadJob, ID: id}, {Kind: followLog, ID: id}}
}

// folded is the array or the jobs file that a row is, and the sum of its jobs.
func (m model) folded(v job.View) (api.BatchSum, bool) {
	id, _, isTask := strings.Cut(v.ID, "_")
	if tasks, ok := m.page.Arrays[id]; ok && isTask {
		return api.BatchSum{Array: id, User: v.User, Tasks: tasks}, true
	}
	at := slices.IndexFunc(m.page.Batches, func(b api.BatchSum) bool { return v.Batch != nil && b.File == *v.Batch && b.User == v.User })
	if at < 0 {
		return api.BatchSum{}, false
	}
	return m.page.Batches[at], true
}

// named is the id and the name of a row, and what an action on it is about: a job,
// a whole array, or all lines of a jobs file.
func (m model) named(v job.View) (id, name, words string) {
	switch sum, ok := m.folded(v); {
	case ok && sum.Array != "":
		return sum.Array, v.Name, "array " + sum.Array + " (" + v.Name + "): " + sum.String()
	case ok:
		name = filepath.Base(sum.File)
		return "-", name, "all lines of " + name + ": " + sum.String()
	}
	return v.ID, v.Name, "job " + v.ID + " (" + v.Name + ")"
}

func (m model) selected() (job.View, bool) {
	if m.at < len(m.rows) && m.rows[m.at].ID == m.selectedID {
		return m.rows[m.at], true
	}
	return job.View{}, false
}

func (m *model) notify(words string) { m.notice, m.noticeAt = words, m.now }
