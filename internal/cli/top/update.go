package top

import (
	"math"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// commandKind is what a command does.
type commandKind int

// The kinds.
const (
	loadQueue   commandKind = iota + 1 // the jobs of query
	loadGPUs                           // the GPUs
	loadSamples                        // samples of the GPU N
	loadJob                            // a job in detail, with its samples
	loadWhy                            // when a queued job is expected to start
	followLog                          // of this job and no other; empty: of none
	doAct                              // Word is an action of the api
	doEdit                             // N is a new priority
	doPause                            // the GPU N
	doResume                           // likewise
	doCopy                             // the id to the clipboard
	doQuit
)

// command is what Update returns beside the model, as a tea.Cmd, but a value that
// tests can compare.
type command struct {
	Kind commandKind
	ID   string
	Word string
	N    int
	File job.Batch // doAct: all lines of this jobs file instead of ID
}

// The messages. The reply to a command names its subject, since the model may have
// moved on.
type (
	// tickMsg arrives once a second.
	tickMsg struct{ Now time.Time }
	// sizeMsg is a new size of the terminal.
	sizeMsg struct{ Width, Height int }
	// keyMsg is a key, by bubbletea's name for it.
	keyMsg struct{ Name string }
	// mouseMsg is a click, or a turn of the wheel.
	mouseMsg struct {
		X, Y int
		Turn int // 0: a click
	}
	// userMsg is the name of the user at the terminal.
	userMsg struct{ Name string }
	// queueMsg answers loadQueue.
	queueMsg struct {
		Query api.Query
		Page  api.JobPage
		Err   error
	}
	// gpusMsg answers loadGPUs.
	gpusMsg struct {
		GPUs []api.GPU
		Err  error
	}
	// samplesMsg answers loadSamples.
	samplesMsg struct {
		GPU     int
		Samples api.Samples
	}
	// jobMsg answers loadJob. Samples is nil if the caller may not see them.
	jobMsg struct {
		ID      string
		Detail  api.Detail
		Samples *api.Samples
		Err     error
	}
	// whyMsg answers loadWhy.
	whyMsg struct {
		ID  string
		Why api.Why
	}
	// logMsg is more of a log, or why there is no more.
	logMsg struct {
		ID   string
		Data []byte
		Err  error
	}
	// doneMsg is the outcome of an action.
	doneMsg struct {
		Said string
	}
	// changedMsg means that the queue has changed.
	changedMsg struct{}
)

// firstCommands are those of a new model.
func firstCommands(m model) []command { return []command{{Kind: loadGPUs}, {Kind: loadQueue}} }

// update returns the next model and its commands.
func update(m model, msg any) (model, []command) {
	switch msg := msg.(type) {
	case tickMsg:
		return m, m.tick(msg.Now)
	case sizeMsg:
		m.Width, m.Height = msg.Width, msg.Height
		return m, m.choose(m.at)
	case keyMsg:
		m.notice = "" // it was about the key before
		return m, m.key(msg.Name)
	case mouseMsg:
		return m, m.mouse(msg)
	case userMsg:
		m.me = msg.Name
	case queueMsg:
		return m, m.takeQueue(msg)
	case gpusMsg:
		m.askingGPUs = false
		m.answered(msg.Err)
		if msg.Err == nil {
			m.gpus = msg.GPUs
			m.gpuAt = max(0, min(m.gpuAt, len(m.gpus)-1))
		}
	case samplesMsg:
		m.utilisation[msg.GPU] = utilisation(msg.Samples, m.now)
	case jobMsg:
		if msg.ID == m.selectedID && msg.Err == nil {
			m.detail, m.samples = &msg.Detail, msg.Samples
			if m.keptSelection {
				m.rows[m.at] = msg.Detail.View
			}
		}
	case whyMsg:
		m.takeWhy(msg)
	case logMsg:
		if msg.ID == m.selectedID {
			m.log.add(msg.Data)
			if msg.Err != nil {
				m.log.note = msg.Err.Error()
			}
		}
	case doneMsg:
		m.notify(msg.Said)
		m.dirty = true
	case changedMsg:
		m.dirty = true
	}
	return m, nil
}

func (m *model) takeQueue(msg queueMsg) []command {
	m.askingQueue = false
	m.answered(msg.Err)
	if msg.Err != nil {
		return nil
	}
	if !sameRows(msg.Query, m.query()) {
		m.dirty = true // the filter changed meanwhile
		return nil
	}
	same := sameRows(msg.Query, m.shown)
	m.page, m.shown = msg.Page, msg.Query
	m.arrange(same)
	return m.choose(m.at)
}

// sameRows reports whether two questions select the same jobs.
func sameRows(a, b api.Query) bool { return a.Name == b.Name && a.User == b.User && a.Over == b.Over }

// answered notes whether the daemon answers.
func (m *model) answered(err error) {
	switch {
	case err == nil:
		m.lostSince, m.lostErr = time.Time{}, ""
	case m.lostSince.IsZero():
		m.lostSince, m.lostErr = m.now, err.Error()
	}
}

func (m *model) takeWhy(msg whyMsg) {
	var expected time.Time
	if e := msg.Why.Expected; e != nil && !e.Mid.IsZero() {
		expected = m.now.Add(e.Mid.Sub(e.Now)) // by this machine's clock
	}
	m.starts[msg.ID] = start{expected, m.now}
	if msg.ID == m.selectedID {
		m.why = &msg.Why
	}
	if len(m.starts) > 2*maxRows { // of jobs that are long gone
		clear(m.starts)
	}
}

// utilisation is a GPU's in parts of the last time.
func utilisation(s api.Samples, now time.Time) []float64 {
	const parts = 30
	values := make([]float64, parts)
	for i := range values {
		values[i] = math.NaN()
	}
	for _, track := range s.Tracks {
		for i, p := range track.Points {
			at := parts - 1 - int(now.Sub(p.At)*parts/samplesSpan)
			if p.Util == nil || at < 0 || at >= parts {
				continue
			}
			first := at
			if i > 0 && !p.AfterGap { // a value counts since the point before
				first = max(0, min(at, parts-int(now.Sub(track.Points[i-1].At)*parts/samplesSpan)))
			}
			for ; first <= at; first++ {
				values[first] = *p.Util
			}
		}
	}
	return values
}

// tick asks for what is due.
func (m *model) tick(now time.Time) (cmds []command) {
	m.now = now
	if now.Sub(m.noticeAt) > noticeFor {
		m.notice = ""
	}
	if !m.askingGPUs && now.Sub(m.gpusAt) >= gpusEvery {
		m.askingGPUs, m.gpusAt = true, now
		cmds = append(cmds, command{Kind: loadGPUs})
	}
	changed := m.dirty
	if !m.askingQueue && (m.dirty || now.Sub(m.queueAt) >= queueEvery || !m.lostSince.IsZero()) {
		m.askingQueue, m.queueAt, m.dirty = true, now, false
		cmds = append(cmds, command{Kind: loadQueue})
	}
	if m.selectedID != "" && (changed || now.Sub(m.jobAt) >= jobEvery) {
		m.jobAt = now
		cmds = append(cmds, command{Kind: loadJob, ID: m.selectedID})
	}
	if len(m.gpus) > 0 && (now.Sub(m.samplesAt) >= samplesEvery || len(m.utilisation) < len(m.gpus)) {
		m.samplesAt = now
		m.samplesTurn = (m.samplesTurn + 1) % len(m.gpus)
		cmds = append(cmds, command{Kind: loadSamples, N: m.gpus[m.samplesTurn].Index})
	}
	if id := m.nextWhy(); id != "" {
		m.starts[id] = start{m.starts[id].expected, now}
		cmds = append(cmds, command{Kind: loadWhy, ID: id})
	}
	return cmds
}

// nextWhy is a queued job on the screen whose expected start is not known, or was
// asked for longest ago: the selected one first, and only one a second.
func (m *model) nextWhy() string {
	old := func(id string) bool { return m.now.Sub(m.starts[id].at) >= whyAge }
	if v, ok := m.selected(); ok && v.State == job.Queued && (old(v.ID) || m.why == nil && m.now.Sub(m.starts[v.ID].at) >= jobEvery) {
		return v.ID
	}
	for i := m.scroll; i < min(len(m.rows), m.scroll+m.layout().rows); i++ {
		if v := m.rows[i]; v.State == job.Queued && !v.Held && old(v.ID) {
			return v.ID
		}
	}
	return ""
}

// act asks first where work could be lost.
func (m *model) act(action string) []command {
	v, ok := m.selected()
	if !ok {
		return nil
	}
	id, _, words := m.named(v)
	cmd := command{Kind: doAct, ID: id, Word: action}
	if sum, ok := m.folded(v); ok && sum.File != "" {
		cmd.ID, cmd.File = "", job.Batch{User: sum.User, File: sum.File}
	}
	switch {
	case action == api.ActCancel:
		words = "cancel " + words
	case action == api.ActRequeue && v.State.Terminal():
		words = "run " + words + " again"
	case action == api.ActRequeue:
		words = "stop " + words + " and run it again from the beginning"
	default:
		return []command{cmd}
	}
	m.mode, m.ask = asking, question{words + "? y/n", cmd}
	return nil
}

func (m *model) raise(by int) []command {
	v, ok := m.selected()
	if !ok {
		return nil
	}
	if _, folded := m.folded(v); folded {
		m.notify("+ and - change one job, not an array or a jobs file")
		return nil
	}
	return []command{{Kind: doEdit, ID: v.ID, N: v.Priority + by}}
}

func (m *model) pause() []command {
	if m.gpuAt >= len(m.gpus) {
		return nil
	}
	g := m.gpus[m.gpuAt]
	if g.Paused {
		return []command{{Kind: doResume, N: g.Index}}
	}
	m.mode, m.ask = asking, question{"start no more jobs on gpu" + strconv.Itoa(g.Index) + "? y/n", command{Kind: doPause, N: g.Index}}
	return nil
}
