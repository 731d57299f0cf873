package top

import (
	"strings"

	"berth/internal/api"
	"berth/internal/text"
)

// keyHelp lists the keys. A test checks that each of them does something.
var keyHelp = []struct{ keys, does string }{
	{"up down k j", "move"},
	{"pgup pgdown home end", "move far"},
	{"tab", "between GPUs and jobs"},
	{"enter", "its log, full screen (/ searches, n goes on, q comes back)"},
	{"/", "only jobs with this in their name; esc for all"},
	{"s", "sort by queue, memory, submitted, user or name"},
	{"o", "own jobs, or those of all users"},
	{"e", "also those that have ended, or not"},
	{"c", "cancel the job, after a question"},
	{"h r", "hold it, release it"},
	{"R", "run it again from the beginning, after a question"},
	{"+ -", "raise or lower its priority"},
	{"P U", "park it, unpark it"},
	{"p", "pause the GPU, after a question, or resume it"},
	{"y", "copy the id of the job to the clipboard"},
	{"?", "this list"},
	{"q ctrl+c", "quit"},
}

func (m *model) key(name string) []command {
	if name == "ctrl+c" {
		return []command{{Kind: doQuit}}
	}
	switch m.mode {
	case filtering, searching:
		return m.typed(name)
	case asking:
		return m.answer(name)
	case reading:
		m.readingKey(name)
		return nil
	case helping:
		if m.helpAt += helpRows(*m); m.helpAt >= len(keyHelp) {
			m.mode = normal
		}
		return nil
	}
	return m.normalKey(name)
}

func (m *model) normalKey(name string) []command {
	page := max(1, m.layout().rows)
	switch name {
	case "up", "k":
		return m.move(-1)
	case "down", "j":
		return m.move(1)
	case "pgup":
		return m.move(-page)
	case "pgdown":
		return m.move(page)
	case "home":
		return m.move(-maxRows)
	case "end":
		return m.move(maxRows)
	case "tab":
		m.onGPUs = !m.onGPUs
	case "enter":
		if m.selectedID != "" {
			m.mode = reading
		}
	case "/":
		m.mode, m.prompt = filtering, m.filter
	case "esc":
		return m.filterBy("")
	case "s":
		m.sortBy = (m.sortBy + 1) % len(sorts)
		m.arrange(true)
		return m.choose(m.at)
	case "o":
		m.own = !m.own
		m.askingQueue = true
		return []command{{Kind: loadQueue}}
	case "e":
		m.ended = !m.ended
		m.askingQueue = true
		return []command{{Kind: loadQueue}}
	case "?":
		m.mode, m.helpAt = helping, 0
	case "q":
		return []command{{Kind: doQuit}}
	default:
		return m.actKey(name)
	}
	return nil
}

// actKey is a key that changes something.
func (m *model) actKey(name string) []command {
	switch name {
	case "c":
		return m.act(api.ActCancel)
	case "h":
		return m.act(api.ActHold)
	case "r":
		return m.act(api.ActRelease)
	case "R":
		return m.act(api.ActRequeue)
	case "P":
		return m.act(api.ActPark)
	case "U":
		return m.act(api.ActUnpark)
	case "+":
		return m.raise(1)
	case "-":
		return m.raise(-1)
	case "p":
		return m.pause()
	case "y":
		if m.selectedID != "" {
			id := m.selectedID
			if v, ok := m.selected(); ok {
				id, _, _ = m.named(v)
				if sum, folded := m.folded(v); folded && sum.File != "" {
					id = sum.File
				}
			}
			m.notify("copied " + id)
			return []command{{Kind: doCopy, ID: id}}
		}
	}
	return nil
}

func (m *model) move(by int) []command {
	if m.onGPUs {
		m.gpuAt = max(0, min(m.gpuAt+by, len(m.gpus)-1))
		return nil
	}
	return m.choose(m.at + by)
}

// answer is the key after a question. Anything but y is no.
func (m *model) answer(name string) []command {
	m.mode = normal
	if name != "y" {
		m.notify("nothing was changed")
		return nil
	}
	return []command{m.ask.onYes}
}

// typed is a key of a line that is being typed.
func (m *model) typed(name string) []command {
	was := m.mode
	back := normal
	if was == searching {
		back = reading
	}
	switch {
	case name == "esc":
		m.mode = back
	case name == "enter" && was == filtering:
		m.mode = back
		return m.filterBy(m.prompt)
	case name == "enter":
		m.mode = back
		m.log.search = m.prompt
		m.log.next()
	case name == "backspace":
		runes := []rune(m.prompt)
		m.prompt = string(runes[:max(0, len(runes)-1)])
	case name == "space":
		m.prompt += " "
	case len([]rune(name)) == 1 && len(m.prompt) < maxPrompt:
		m.prompt += text.Line(name)
	}
	return nil
}

func (m *model) filterBy(words string) []command {
	// The characters of a pattern mean themselves here.
	m.filter = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`*?[]\`, r) {
			return '?'
		}
		return r
	}, words)
	m.askingQueue = true
	return []command{{Kind: loadQueue}}
}

// readingKey is a key while the log has the whole screen.
func (m *model) readingKey(name string) {
	page := max(1, m.Height-2)
	switch name {
	case "q", "esc", "enter":
		m.mode = normal
	case "up", "k":
		m.log.back++
	case "down", "j":
		m.log.back--
	case "pgup":
		m.log.back += page
	case "pgdown":
		m.log.back -= page
	case "home":
		m.log.back = len(m.log.lines)
	case "end":
		m.log.back = 0
	case "/":
		m.mode, m.prompt = searching, ""
	case "n":
		m.log.next()
	}
	m.log.back = max(0, min(m.log.back, len(m.log.lines)-page))
}

func (m *model) mouse(e mouseMsg) []command {
	switch {
	case m.mode == reading && e.Turn != 0:
		m.log.back = max(0, min(m.log.back-3*e.Turn, len(m.log.lines)-max(1, m.Height-2)))
		return nil
	case m.mode != normal:
		return nil
	case e.Turn != 0:
		return m.move(e.Turn)
	}
	l := m.layout()
	switch row := e.Y - l.jobsAt; {
	case e.Y >= l.gpusAt && e.Y < l.gpusAt+l.gpus:
		m.onGPUs, m.gpuAt = true, min(len(m.gpus)-1, l.firstGPU+e.Y-l.gpusAt)
	case row >= 0 && row < l.rows && m.scroll+row < len(m.rows):
		m.onGPUs = false
		return m.choose(m.scroll + row)
	}
	return nil
}
