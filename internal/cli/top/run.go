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
	h := &commander{ctx: ctx, client: c}
	cmds := firstCommands(m)
	for len(cmds) > 0 {
		next := cmds[0]
		cmds = cmds[1:]
		if next.Kind == followLog {
			next.N = 1 // only what there is
		}
		msg := h.do(next, m.query())
		if q, is := msg.(queueMsg); is && q.Err != nil {
			return "", q.Err
		}
		var more []command
		m, more = update(m, msg)
		cmds = append(cmds, more...)
		if next.Kind == loadGPUs {
			for _, g := range m.gpus {
				cmds = append(cmds, command{Kind: loadSamples, N: g.Index})
			}
		}
	}
	for range onceStarts {
		id := m.nextWhy()
		if id == "" {
			break
		}
		m.starts[id] = start{at: m.now}
		m, _ = update(m, h.do(command{Kind: loadWhy, ID: id}, m.query()))
	}
	return draw(m) + "\n", nil
}

// Run shows the queue until the user quits.
func Run(ctx context.Context, c *api.Client, in io.Reader, out io.Writer, s Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &commander{ctx: ctx, client: c}
	profile := colorprofile.Ascii
	if s.Colour {
		profile = colorprofile.ANSI
	}
	p := tea.NewProgram(&program{model: newModel(s, time.Now()), commander: h},
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
	model     model
	commander *commander
}

func (p *program) Init() tea.Cmd {
	return tea.Batch(p.run(firstCommands(p.model)), p.commander.loadUser, again())
}

func again() tea.Cmd { return tea.Tick(tickEvery, func(now time.Time) tea.Msg { return tickMsg{now} }) }

func (p *program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch event := msg.(type) {
	case tickMsg:
		next = again()
	case tea.WindowSizeMsg:
		msg = sizeMsg{event.Width, event.Height}
	case tea.KeyPressMsg:
		msg = keyMsg{event.String()}
	case tea.MouseClickMsg:
		msg = mouseMsg{X: event.X, Y: event.Y}
	case tea.MouseWheelMsg:
		turn := 1
		if event.Button == tea.MouseWheelUp {
			turn = -1
		}
		msg = mouseMsg{X: event.X, Y: event.Y, Turn: turn}
	}
	var cmds []command
	p.model, cmds = update(p.model, msg)
	return p, tea.Batch(p.run(cmds), next)
}

func (p *program) View() tea.View {
	v := tea.NewView(draw(p.model))
	v.AltScreen, v.MouseMode = true, tea.MouseModeCellMotion
	return v
}

func (p *program) run(cmds []command) tea.Cmd {
	var all []tea.Cmd
	for _, w := range cmds {
		switch w.Kind {
		case doQuit:
			all = append(all, tea.Quit)
		case doCopy:
			all = append(all, tea.SetClipboard(w.ID))
		default:
			query := p.model.query()
			all = append(all, func() tea.Msg { return p.commander.do(w, query) })
		}
	}
	return tea.Batch(all...)
}

// commander carries out commands.
type commander struct {
	ctx    context.Context
	client *api.Client
	send   func(any)

	mu      sync.Mutex
	stopLog context.CancelFunc // ends the log that is followed
}

// watch sends a word about every change, at most twice a second: a busy queue has
// thousands.
func (h *commander) watch() {
	for h.ctx.Err() == nil {
		last := time.Time{}
		_ = h.client.Events(h.ctx, api.EventQuery{Since: -1}, func(api.Event) error {
			if time.Since(last) >= tickEvery/2 {
				last = time.Now()
				h.send(changedMsg{})
			}
			return nil
		})
		h.send(changedMsg{})
		if api.Pause(h.ctx, 2*tickEvery) != nil {
			return
		}
	}
}

func (h *commander) loadUser() tea.Msg {
	status, err := api.Call(h.ctx, h.client, api.GetStatus, api.None{})
	if err != nil {
		return nil
	}
	return userMsg{status.You.Name}
}

// do carries out one thing and returns the message about it.
func (h *commander) do(w command, query api.Query) any {
	ctx, cancel := context.WithTimeout(h.ctx, askTime)
	defer cancel()
	switch w.Kind {
	case loadQueue:
		page, err := api.Call(ctx, h.client, api.ListJobs, query)
		return queueMsg{query, page, err}
	case loadGPUs:
		cards, err := api.Call(ctx, h.client, api.ListGPUs, api.None{})
		return gpusMsg{cards, err}
	case loadSamples:
		from := time.Now().Add(-samplesSpan)
		samples, err := api.Call(ctx, h.client, api.GetGPUSamples, api.GPUSamplesQuery{GPUIndex: api.GPUIndex{Index: w.N}, SamplesQuery: api.SamplesQuery{From: &from}})
		if err != nil {
			return nil
		}
		return samplesMsg{w.N, samples}
	case loadJob:
		return h.job(ctx, w.ID)
	case loadWhy:
		why, err := api.Call(ctx, h.client, api.GetWhy, api.JobID{ID: w.ID})
		if err != nil {
			return nil
		}
		return whyMsg{w.ID, why}
	case followLog:
		return h.follow(w.ID, w.N == 0)
	}
	return doneMsg{h.change(ctx, w)}
}

func (h *commander) job(ctx context.Context, id string) any {
	detail, err := api.Call(ctx, h.client, api.GetJob, api.JobID{ID: id})
	if err != nil {
		return jobMsg{ID: id, Err: err}
	}
	msg := jobMsg{ID: id, Detail: detail}
	if samples, err := api.Call(ctx, h.client, api.GetJobSamples, api.JobSamplesQuery{JobID: api.JobID{ID: id}}); err == nil {
		msg.Samples = &samples
	}
	return msg
}

// change acts on a job or a GPU, and says what came of it.
func (h *commander) change(ctx context.Context, w command) string {
	var err error
	switch w.Kind {
	case doEdit:
		_, err = api.Call(ctx, h.client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: w.ID}, Set: api.Spec{Priority: api.Text(strconv.Itoa(w.N))}})
		if err == nil {
			return fmt.Sprintf("job %s has priority %d", w.ID, w.N)
		}
	case doPause, doResume:
		if _, err = api.Call(ctx, h.client, api.Pausing(w.Kind == doPause), api.GPUIndex{Index: w.N}); err == nil {
			return fmt.Sprintf("gpu%d: done", w.N)
		}
	case doAct:
		var reply api.ActReply
		sel := api.Select{Words: []string{w.ID}}
		if w.File.File != "" {
			sel = api.Select{Batch: w.File.File, User: w.File.User}
		}
		reply, err = api.Call(ctx, h.client, api.Act, api.ActRequest{Action: w.Word, Select: sel})
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
func (h *commander) follow(id string, on bool) any {
	h.mu.Lock()
	if h.stopLog != nil {
		h.stopLog()
	}
	ctx, cancel := context.WithCancel(h.ctx)
	h.stopLog = cancel
	h.mu.Unlock()
	if id == "" {
		return nil
	}
	log, err := h.client.Log(ctx, api.LogQuery{ID: id, Lines: maxLogLines / 4, Follow: on})
	if err != nil {
		return logMsg{ID: id, Err: err}
	}
	if !on {
		defer log.Close()
		data, err := io.ReadAll(io.LimitReader(log, maxLogLines*maxLogLine))
		return logMsg{ID: id, Data: data, Err: err}
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
				h.send(logMsg{ID: id, Data: append([]byte(nil), buffer[:n]...)})
			}
			if err != nil {
				return
			}
			if n > 4<<10 && api.Pause(ctx, tickEvery/frames) != nil { // a log may be faster than any reader
				return
			}
		}
	}()
	return nil
}
