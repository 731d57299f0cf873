package gpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The phases of a simulated process that is being parked; a running one has
// none.
const (
	simLocked = "locked"
	simParked = "parked"
	simFailed = "failed"
)

// serveSim makes the driver's checkpoint calls for the processes of a
// simulation, as berth-gpu does for real ones, until its input ends. A line
// "park VERB refuse|hang|die|fail [once]" in the file "fault" makes a call go
// wrong.
func serveSim(dir string, in io.Reader, out io.Writer) error {
	box, err := readSimBox(dir)
	if err != nil {
		return err
	}
	d := &simDriver{box: box}
	replies := make(chan string)
	go func() {
		for line := range replies {
			fmt.Fprintln(out, line)
		}
	}()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		go func() {
			reply, err := d.answer(words[1], words[2:])
			if err != nil {
				reply = "no " + err.Error()
			} else {
				reply = strings.TrimSpace("ok " + reply)
			}
			replies <- words[0] + " " + reply
		}()
	}
	return lines.Err()
}

// DriverWord, as berth's first argument, makes it a simulated driver.
const DriverWord = "__park"

// DriverMain is the process of a simulated driver.
func DriverMain(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(errs, "berth: this is started by berth, not by hand")
		return 2
	}
	if err := serveSim(args[0], in, out); err != nil {
		fmt.Fprintln(errs, "berth:", err)
		return 1
	}
	return 0
}

// Driver is the command of the program that parks jobs, or why jobs cannot be
// parked.
func Driver(simDir string, getenv func(string) string) (argv []string, cannot string) {
	if simDir != "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err.Error()
		}
		return []string{self, DriverWord, simDir}, ""
	}
	path, why := findHelper(OpenOptions{Env: getenv, root: systemRoot})
	if path == "" {
		return nil, why
	}
	return []string{path, "park"}, ""
}

type simDriver struct{ box *simBox }

var errSimGone = errors.New("gone")

func (d *simDriver) answer(verb string, words []string) (string, error) {
	if err := d.fault(verb, words); err != nil {
		return "", err
	}
	switch {
	case verb == "hello":
		return "", nil
	case verb == "free":
		return "", d.free()
	case verb == "hold" && len(words) == 2:
		mib, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return "", err
		}
		return "", d.hold(words[0], mib)
	case len(words) == 0:
		return "", fmt.Errorf("unknown request %q", verb)
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil {
		return "", err
	}
	if verb == "state" {
		return d.state(pid)
	}
	return "", d.move(verb, pid)
}

// state is that of a process; one that is not in the box does not use it.
func (d *simDriver) state(pid int) (state string, err error) {
	err = d.box.locked(func() error {
		_, record, err := d.find(pid)
		switch {
		case errors.Is(err, errSimGone) && !processExists(pid):
			state = "gone"
		case errors.Is(err, errSimGone):
			state = "none"
		case err != nil:
			return err
		case record.Phase == "":
			state = "running"
		default:
			state = record.Phase
		}
		return nil
	})
	return state, err
}

// simMoves are what each call expects and leaves.
var simMoves = map[string][2]string{
	"lock": {"", simLocked}, "checkpoint": {simLocked, simParked}, "restore": {simParked, simLocked}, "unlock": {simLocked, ""},
}

func (d *simDriver) move(verb string, pid int) error {
	step, known := simMoves[verb]
	if !known {
		return fmt.Errorf("unknown request %q", verb)
	}
	return d.box.locked(func() error {
		path, record, err := d.find(pid)
		if err != nil {
			return err
		}
		if record.Phase != step[0] {
			return fmt.Errorf("illegal state: %q", record.Phase)
		}
		switch verb {
		case "lock":
			record.LockedAt = time.Now()
		case "checkpoint":
			record.Saved, record.Uses = record.Uses, nil
		case "restore":
			if err := d.room(pid, record.Saved); err != nil {
				// As the real driver: it can never be restored any more.
				record.Phase = simFailed
				return errors.Join(err, d.put(path, record))
			}
			record.Uses, record.Saved = record.Saved, nil
		case "unlock":
			record.Away += time.Since(record.LockedAt)
		}
		record.Phase = step[1]
		return d.put(path, record)
	})
}

// find is a process's record and its file.
func (d *simDriver) find(pid int) (path string, record simRecord, err error) {
	ticks, err := processStart(pid)
	if err != nil {
		return "", record, errSimGone
	}
	path = filepath.Join(d.box.dir, "procs", fmt.Sprintf("%d.%d", pid, ticks))
	record, sound := readSimRecord(path, pid)
	if !sound {
		return "", record, errSimGone
	}
	return path, record, nil
}

func (d *simDriver) put(path string, record simRecord) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return replaceFile(path, data)
}

// room checks that the cards have what a process wants to hold.
func (d *simDriver) room(pid int, uses []simUse) error {
	records, err := d.box.live()
	if err != nil {
		return err
	}
	p := simProcess{box: d.box, pid: pid}
	for _, use := range uses {
		if err := p.fits(records, use.Card, use.MiB); err != nil {
			return err
		}
	}
	return nil
}

// hold takes memory for the driver's own process.
func (d *simDriver) hold(uuid string, mib int64) error {
	own, err := joinSim(d.box.dir)
	if err != nil {
		return err
	}
	return d.box.locked(func() error {
		record, _ := readSimRecord(own.path, own.pid)
		for _, card := range d.box.Cards {
			if card.UUID == uuid {
				record.Uses = append(record.Uses, simUse{Card: card.Index, MiB: mib})
				if err := d.room(own.pid, record.Uses); err != nil {
					return err
				}
				return d.put(own.path, record)
			}
		}
		return fmt.Errorf("the simulation has no %s", uuid)
	})
}

func (d *simDriver) free() error {
	own, err := joinSim(d.box.dir)
	if err != nil {
		return err
	}
	return own.free()
}

// fault does what the file "fault" asks for.
func (d *simDriver) fault(verb string, words []string) error {
	how, err := d.askedFault(verb)
	if err != nil {
		return err
	}
	switch how {
	case "":
		return nil
	case "hang":
		select {}
	case "die":
		os.Exit(1)
	case "fail":
		if pid, err := strconv.Atoi(strings.Join(words[:min(1, len(words))], "")); err == nil {
			_ = d.box.locked(func() error {
				path, record, err := d.find(pid)
				if err == nil {
					record.Phase = simFailed
					err = d.put(path, record)
				}
				return err
			})
		}
	}
	return errors.New("CUDA_ERROR_NOT_SUPPORTED (801)")
}

// askedFault is how a call is to go wrong, if at all. What is asked for once goes to one
// of several drivers that ask at the same time.
func (d *simDriver) askedFault(verb string) (how string, err error) {
	path := filepath.Join(d.box.dir, "fault")
	err = d.box.locked(func() error {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var rest []string
		for line := range strings.Lines(string(text)) {
			asked := strings.Fields(line)
			if len(asked) < 3 || asked[0] != "park" || asked[1] != verb || how != "" {
				rest = append(rest, line)
				continue
			}
			if how = asked[2]; len(asked) == 3 {
				rest = append(rest, line)
			}
		}
		if how == "" {
			return nil
		}
		return replaceFile(path, []byte(strings.Join(rest, "")))
	})
	return how, err
}

func processExists(pid int) bool {
	_, err := processStart(pid)
	return err == nil
}
