package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"berth/internal/api"
	"berth/internal/text"
)

// frames bounds how often the screen is drawn in a second.
const frames = 10

// askTime bounds one request.
const askTime = 20 * time.Second

// onceStarts bounds the expected starts that one frame asks for: each is a
// forecast for the daemon.
const onceStarts = 10

// Once draws one frame of what there is now.
func Once(ctx context.Context, c *api.Client, s Screen, now time.Time) (string, error) {
	m := newModel(s, now)
	h := &hands{ctx: ctx, client: c}
	want := m.begin()
	for len(want) > 0 {
		next := want[0]
		want = want[1:]
		if next.Kind == followLog {
			next.N = 1 // only what there is
		}
		msg := h.do(next, m.query())
		if q, is := msg.(queueSeen); is && q.Err != nil {
			return "", q.Err
		}
		var more []wish
		m, more = update(m, msg)
		want = append(want, more...)
		if next.Kind == seeCards {
			for _, g := range m.gpus {
				want = append(want, wish{Kind: seePast, N: g.Index})
			}
		}
	}
	for range onceStarts {
		id := m.nextWhy()
		if id == "" {
			break
		}
		m.starts[id] = start{at: m.now}
		m, _ = update(m, h.do(wish{Kind: seeWhy, ID: id}, m.query()))
	}
	return draw(m) + "\n", nil
}

// Run shows the queue until the user quits.
func Run(ctx context.Context, c *api.Client, in io.Reader, out io.Writer, s Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hands{ctx: ctx, client: c}
	profile := colorprofile.Ascii
	if s.Colour {
		profile = colorprofile.ANSI
	}
	p := tea.NewProgram(&program{model: newModel(s, time.Now()), hands: h},
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithFPS(frames), tea.WithColorProfile(profile), tea.WithoutSignalHandler())
	h.send = func(msg any) { p.Send(msg) }
	go h.watch()
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// program is the model as bubbletea wants it.
type program struct {
	model model
	hands *hands
}

func (p *program) Init() tea.Cmd {
	return tea.Batch(p.carry(p.model.begin()), p.hands.know, again())
}

func again() tea.Cmd { return tea.Tick(tick, func(now time.Time) tea.Msg { return second{now} }) }

func (p *program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch event := msg.(type) {
	case second:
		next = again()
	case tea.WindowSizeMsg:
		msg = resized{event.Width, event.Height}
	case tea.KeyPressMsg:
		msg = keyPress{event.String()}
	case tea.MouseClickMsg:
		msg = mouseEvent{X: event.X, Y: event.Y}
	case tea.MouseWheelMsg:
		turn := 1
		if event.Button == tea.MouseWheelUp {
			turn = -1
		}
		msg = mouseEvent{X: event.X, Y: event.Y, Turn: turn}
	}
	var want []wish
	p.model, want = update(p.model, msg)
	return p, tea.Batch(p.carry(want), next)
}

func (p *program) View() tea.View {
	v := tea.NewView(draw(p.model))
	v.AltScreen, v.MouseMode = true, tea.MouseModeCellMotion
	return v
}

// carry turns what the model wants into commands.
func (p *program) carry(want []wish) tea.Cmd {
	var all []tea.Cmd
	for _, w := range want {
		switch w.Kind {
		case doQuit:
			all = append(all, tea.Quit)
		case doCopy:
			all = append(all, tea.SetClipboard(w.ID))
		default:
			query := p.model.query()
			all = append(all, func() tea.Msg { return p.hands.do(w, query) })
		}
	}
	return tea.Batch(all...)
}

// hands do what a model wants.
type hands struct {
	ctx    context.Context
	client *api.Client
	send   func(any)

	mu     sync.Mutex
	unread context.CancelFunc // ends the log that is followed
}

// watch sends a word about every change, at most twice a second: a busy queue has
// thousands.
func (h *hands) watch() {
	for h.ctx.Err() == nil {
		last := time.Time{}
		_ = h.client.Events(h.ctx, api.EventQuery{Since: -1}, func(api.Event) error {
			if time.Since(last) >= tick/2 {
				last = time.Now()
				h.send(changed{})
			}
			return nil
		})
		h.send(changed{})
		if api.Pause(h.ctx, 2*tick) != nil {
			return
		}
	}
}

func (h *hands) know() tea.Msg {
	status, err := h.client.Status(h.ctx)
	if err != nil {
		return nil
	}
	return known{status.You.Name}
}

// do carries out one thing and returns the message about it.
func (h *hands) do(w wish, query api.Query) any {
	ctx, cancel := context.WithTimeout(h.ctx, askTime)
	defer cancel()
	switch w.Kind {
	case seeQueue:
		page, err := h.client.Jobs(ctx, query)
		return queueSeen{query, page, err}
	case seeCards:
		cards, err := h.client.GPUs(ctx)
		return cardsSeen{cards, err}
	case seePast:
		from := time.Now().Add(-pastSpan)
		samples, err := h.client.GPUSamples(ctx, w.N, api.SamplesQuery{From: &from})
		if err != nil {
			return nil
		}
		return pastSeen{w.N, samples}
	case seeJob:
		return h.job(ctx, w.ID)
	case seeWhy:
		why, err := h.client.Why(ctx, w.ID)
		if err != nil {
			return nil
		}
		return whySeen{w.ID, why}
	case followLog:
		return h.follow(w.ID, w.N == 0)
	}
	return done{h.change(ctx, w)}
}

func (h *hands) job(ctx context.Context, id string) any {
	detail, err := h.client.Job(ctx, id)
	if err != nil {
		return jobSeen{ID: id, Err: err}
	}
	msg := jobSeen{ID: id, Detail: detail}
	if samples, err := h.client.JobSamples(ctx, id, api.SamplesQuery{}); err == nil {
		msg.Samples = &samples
	}
	return msg
}

// change acts on a job or a GPU, and says what came of it.
func (h *hands) change(ctx context.Context, w wish) string {
	var err error
	switch w.Kind {
	case doEdit:
		_, err = h.client.Edit(ctx, w.ID, api.EditRequest{Set: api.Spec{Priority: api.Text(strconv.Itoa(w.N))}})
		if err == nil {
			return fmt.Sprintf("job %s has priority %d", w.ID, w.N)
		}
	case doPause, doResume:
		if _, err = h.client.PauseGPU(ctx, w.N, w.Kind == doPause); err == nil {
			return fmt.Sprintf("gpu%d: done", w.N)
		}
	case doAct:
		var reply api.ActReply
		sel := api.Select{Words: []string{w.ID}}
		if w.File.File != "" {
			sel = api.Select{Batch: w.File.File, User: w.File.User}
		}
		reply, err = h.client.Act(ctx, api.ActRequest{Action: w.Word, Select: sel})
		if n := len(reply.Jobs); n > 1 {
			return text.CountGrouped(n, "job") + ": " + w.Word
		}
		for _, j := range reply.Jobs {
			return text.Line("job " + j.ID + ": " + j.What)
		}
	}
	if err != nil {
		return text.Line(err.Error())
	}
	return ""
}

// follow reads the end of a log, and sends what comes after it until another is
// followed.
func (h *hands) follow(id string, on bool) any {
	h.mu.Lock()
	if h.unread != nil {
		h.unread()
	}
	ctx, cancel := context.WithCancel(h.ctx)
	h.unread = cancel
	h.mu.Unlock()
	if id == "" {
		return nil
	}
	log, err := h.client.Log(ctx, api.LogQuery{ID: id, Lines: maxLogLines / 4, Follow: on})
	if err != nil {
		return logPart{ID: id, Err: err}
	}
	if !on {
		defer log.Close()
		data, err := io.ReadAll(io.LimitReader(log, maxLogLines*maxLogLine))
		return logPart{ID: id, Data: data, Err: err}
	}
	go func() {
		defer log.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := log.Read(buffer)
			if ctx.Err() != nil {
				return
			}
			if n > 0 {
				h.send(logPart{ID: id, Data: append([]byte(nil), buffer[:n]...)})
			}
			if err != nil {
				return
			}
			if n > 4<<10 && api.Pause(ctx, tick/frames) != nil { // a log may be faster than any reader
				return
			}
		}
	}()
	return nil
}
