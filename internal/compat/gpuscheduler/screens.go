package gpuscheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"berth/internal/compat/frontend"
	"berth/internal/text"
)

// screenSession is one line of `gpu-scheduler screens`.
type screenSession struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	State  string `json:"state"` // attached or detached
	GPUs   string `json:"gpus"`
	Mode   string `json:"mode"`
	Job    string `json:"job"`
	Attach string `json:"attach"`
}

// runScreens is `gpu-scheduler screens [--json]`: this user's sessions, whatever
// scheduler started them.
func runScreens(c call, stateFile string, args []string) int {
	flags := newFlags(&stateFile)
	asJSON := flags.Bool("json", false, "")
	if err := parse(flags, "screens", args, 0); err != nil {
		return c.Misuse(err.Error(), frontend.BadUsage)
	}
	if _, err := exec.LookPath("screen"); err != nil {
		c.Complain("GNU Screen command not found", "sudo apt-get install screen")
		return frontend.Failed
	}
	sessions := listSessions()
	if *asJSON {
		_ = json.NewEncoder(c.Out).Encode(sessions)
		return 0
	}
	if len(sessions) == 0 {
		fmt.Fprintln(c.Out, "No active screen sessions of GPU jobs.")
		return 0
	}
	table := text.Titled("SESSION", "GPUS", "MODE", "JOB", "STATE", "ATTACH WITH")
	for _, s := range sessions {
		table.Row(s.Name, s.GPUs, s.Mode, s.Job, s.State, s.Attach)
	}
	fmt.Fprint(c.Out, table)
	return 0
}

// listSessions asks screen, for its own directory and for ours.
func listSessions() []screenSession {
	sessions := []screenSession{}
	listing, _ := exec.Command("screen", "-ls").Output() // the exit status depends on the number of sessions
	sessions = append(sessions, readSessions(string(listing), "")...)
	if own := ownScreenDir(); os.Getenv("SCREENDIR") != own {
		if _, err := os.Stat(own); err == nil {
			command := exec.Command("screen", "-ls")
			command.Env = append(os.Environ(), "SCREENDIR="+own)
			listing, _ := command.Output()
			sessions = append(sessions, readSessions(string(listing), "SCREENDIR="+own+" ")...)
		}
	}
	return sessions
}

// sessionLine is a line of screen -ls, with or without the start time.
const sessionLine = `^\s+(\d+)\.(gpujob_([^_\s]+)_(\S+)_([^_\s]+))\s.*\(([^()]*)\)\s*$`

func readSessions(listing, prefix string) (sessions []screenSession) {
	expression := regexp.MustCompile(sessionLine)
	for line := range strings.Lines(listing) {
		m := expression.FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(m[6], "Dead") { // left for screen -wipe
			continue
		}
		s := screenSession{Name: m[2], GPUs: m[3], Mode: m[4], Job: m[5], State: sessionState(m[6]), Attach: prefix + "screen -r " + m[2]}
		s.PID, _ = strconv.Atoi(m[1])
		sessions = append(sessions, s)
	}
	return sessions
}

// sessionState is attached or detached.
func sessionState(state string) string {
	if strings.Contains(strings.ToLower(state), "attached") {
		return "attached"
	}
	return "detached"
}
