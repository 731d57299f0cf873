package top

import (
	"math"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// deed is what a model wants done.
type deed int

// The kinds.
const (
	seeQueue  deed = iota + 1 // the jobs of query
	seeCards                  // the GPUs
	seePast                   // samples of the GPU N
	seeJob                    // a job in detail, with its samples
	seeWhy                    // when a queued job is expected to start
	followLog                 // of this job and no other; empty: of none
	doAct                     // Word is an action of the api
	doEdit                    // N is a new priority
	doPause                   // the GPU N
	doResume                  // likewise
	doCopy                    // the id to the clipboard
	doQuit
)

// wish is something to be done outside of the model.
type wish struct {
	Kind deed
	ID   string
	Word string
	N    int
	File job.Batch // doAct: all lines of this jobs file instead of ID
}

// The messages. Each answer to a wish carries what it is about, since the model
// may have moved on.
type (
	// second is a second.
	second struct{ Now time.Time }
	// resized is a new size of the terminal.
	resized struct{ Width, Height int }
	// keyPress is a key, by bubbletea's name for it.
	keyPress struct{ Name string }
	// mouseEvent is a click, or a turn of the wheel.
	mouseEvent struct {
		X, Y int
		Turn int // 0: a click
	}
	// known is the name of the user at the terminal.
	known struct{ Name string }
	// queueSeen answers seeQueue.
	queueSeen struct {
		Query api.Query
		Page  api.JobPage
		Err   error
	}
	// cardsSeen answers seeCards.
	cardsSeen struct {
		GPUs []api.GPU
		Err  error
	}
	// pastSeen answers seePast.
	pastSeen struct {
		GPU     int
		Samples api.Samples
	}
	// jobSeen answers seeJob. Samples is nil if the caller may not see them.
	jobSeen struct {
		ID      string
		Detail  api.Detail
		Samples *api.Samples
		Err     error
	}
	// whySeen answers seeWhy.
	whySeen struct {
		ID  string
		Why api.Why
	}
	// logPart is more of a log, or why there is no more.
	logPart struct {
		ID   string
		Data []byte
		Err  error
	}
	// done says what became of an action.
	done struct {
		Said string
	}
	// changed means that the queue is not as it was.
	changed struct{}
)

// begin is what a new model wants.
func (m model) begin() []wish { return []wish{{Kind: seeCards}, {Kind: seeQueue}} }

// update is the next model and what it wants.
func update(m model, msg any) (model, []wish) {
	switch msg := msg.(type) {
	case second:
		return m, m.tick(msg.Now)
	case resized:
		m.Width, m.Height = msg.Width, msg.Height
		return m, m.choose(m.at)
	case keyPress:
		m.said = "" // it was about the key before
		return m, m.key(msg.Name)
	case mouseEvent:
		return m, m.mouse(msg)
	case known:
		m.me = msg.Name
	case queueSeen:
		return m, m.takeQueue(msg)
	case cardsSeen:
		m.askingCards = false
		m.answered(msg.Err)
		if msg.Err == nil {
			m.gpus = msg.GPUs
			m.gpuAt = max(0, min(m.gpuAt, len(m.gpus)-1))
		}
	case pastSeen:
		m.past[msg.GPU] = utilisation(msg.Samples, m.now)
	case jobSeen:
		if msg.ID == m.chosen && msg.Err == nil {
			m.detail, m.samples = &msg.Detail, msg.Samples
			if m.kept {
				m.rows[m.at] = msg.Detail.View
			}
		}
	case whySeen:
		m.takeWhy(msg)
	case logPart:
		if msg.ID == m.chosen {
			m.log.add(msg.Data)
			if msg.Err != nil {
				m.log.note = msg.Err.Error()
			}
		}
	case done:
		m.say(msg.Said)
		m.dirty = true
	case changed:
		m.dirty = true
	}
	return m, nil
}

func (m *model) takeQueue(msg queueSeen) []wish {
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
		m.since, m.lost = time.Time{}, ""
	case m.since.IsZero():
		m.since, m.lost = m.now, err.Error()
	}
}

func (m *model) takeWhy(msg whySeen) {
	var expected time.Time
	if e := msg.Why.Expected; e != nil && !e.Mid.IsZero() {
		expected = m.now.Add(e.Mid.Sub(e.Now)) // by this machine's clock
	}
	m.starts[msg.ID] = start{expected, m.now}
	if msg.ID == m.chosen {
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
			at := parts - 1 - int(now.Sub(p.At)*parts/pastSpan)
			if p.Util == nil || at < 0 || at >= parts {
				continue
			}
			first := at
			if i > 0 && !p.AfterGap { // a value counts since the point before
				first = max(0, min(at, parts-int(now.Sub(track.Points[i-1].At)*parts/pastSpan)))
			}
			for ; first <= at; first++ {
				values[first] = *p.Util
			}
		}
	}
	return values
}

// tick asks for what is due.
func (m *model) tick(now time.Time) (want []wish) {
	m.now = now
	if now.Sub(m.saidAt) > saidFor {
		m.said = ""
	}
	if !m.askingCards && now.Sub(m.cardsAt) >= cardsEvery {
		m.askingCards, m.cardsAt = true, now
		want = append(want, wish{Kind: seeCards})
	}
	changed := m.dirty
	if !m.askingQueue && (m.dirty || now.Sub(m.queueAt) >= queueEvery || !m.since.IsZero()) {
		m.askingQueue, m.queueAt, m.dirty = true, now, false
		want = append(want, wish{Kind: seeQueue})
	}
	if m.chosen != "" && (changed || now.Sub(m.jobAt) >= jobEvery) {
		m.jobAt = now
		want = append(want, wish{Kind: seeJob, ID: m.chosen})
	}
	if len(m.gpus) > 0 && (now.Sub(m.pastAt) >= pastEvery || len(m.past) < len(m.gpus)) {
		m.pastAt = now
		m.pastTurn = (m.pastTurn + 1) % len(m.gpus)
		want = append(want, wish{Kind: seePast, N: m.gpus[m.pastTurn].Index})
	}
	if id := m.nextWhy(); id != "" {
		m.starts[id] = start{m.starts[id].expected, now}
		want = append(want, wish{Kind: seeWhy, ID: id})
	}
	return want
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
func (m *model) act(action string) []wish {
	v, ok := m.selected()
	if !ok {
		return nil
	}
	id, _, words := m.named(v)
	want := wish{Kind: doAct, ID: id, Word: action}
	if sum, ok := m.folded(v); ok && sum.File != "" {
		want.ID, want.File = "", job.Batch{User: sum.User, File: sum.File}
	}
	switch {
	case action == api.ActCancel:
		words = "cancel " + words
	case action == api.ActRequeue && v.State.Terminal():
		words = "run " + words + " again"
	case action == api.ActRequeue:
		words = "stop " + words + " and run it again from the beginning"
	default:
		return []wish{want}
	}
	m.mode, m.ask = asking, question{words + "? y/n", want}
	return nil
}

func (m *model) raise(by int) []wish {
	v, ok := m.selected()
	if !ok {
		return nil
	}
	if _, folded := m.folded(v); folded {
		m.say("+ and - change one job, not an array or a jobs file")
		return nil
	}
	return []wish{{Kind: doEdit, ID: v.ID, N: v.Priority + by}}
}

func (m *model) pause() []wish {
	if m.gpuAt >= len(m.gpus) {
		return nil
	}
	g := m.gpus[m.gpuAt]
	if g.Paused {
		return []wish{{Kind: doResume, N: g.Index}}
	}
	m.mode, m.ask = asking, question{"start no more jobs on gpu" + strconv.Itoa(g.Index) + "? y/n", wish{Kind: doPause, N: g.Index}}
	return nil
}
