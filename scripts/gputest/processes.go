package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// userHertz is the fixed unit of CPU time in /proc.
const userHertz = 100

func charsText[T int8 | uint8](chars []T) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// allPIDs are the processes of this machine.
func allPIDs() []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func readProc(pid int, file string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(data)
}

func commOf(pid int) string { return strings.TrimSpace(readProc(pid, "comm")) }

// statOf are the fields of /proc/PID/stat after the name, which may contain
// anything; the first is the state.
func statOf(pid int) []string {
	text := readProc(pid, "stat")
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

func parentOf(pid int) int {
	if stat := statOf(pid); len(stat) > 1 {
		parent, _ := strconv.Atoi(stat[1])
		return parent
	}
	return 0
}

func alive(pid int) bool {
	stat := statOf(pid)
	return len(stat) > 0 && stat[0] != "Z" && stat[0] != "X"
}

// processorTime is the CPU time of a process so far.
func processorTime(pid int) time.Duration {
	stat := statOf(pid)
	if len(stat) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(stat[11], 10, 64)
	system, _ := strconv.ParseInt(stat[12], 10, 64)
	return time.Duration(user+system) * time.Second / userHertz
}

// childrenOf are the children with that name; "" means all.
func childrenOf(pid int, name string) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var children []int
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err == nil && (name == "" || commOf(child) == name) {
				children = append(children, child)
			}
		}
	}
	return children
}

// familyOf is a process and all its descendants.
func familyOf(pid int) []int {
	family := []int{pid}
	for i := 0; i < len(family) && i < 1000; i++ {
		family = append(family, childrenOf(family[i], "")...)
	}
	return family
}

// named are the processes whose name has that prefix.
func named(prefix string) []int {
	var pids []int
	for _, pid := range allPIDs() {
		if strings.HasPrefix(commOf(pid), prefix) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// holding are the processes with that text in their environment.
func holding(text string) []int {
	var pids []int
	for _, pid := range allPIDs() {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(environ, []byte(text)) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// marked are the processes of this run: they have its mark in their
// environment, or a file of its directory open (a supervisor, whose
// environment is its own).
func (h *host) marked() []int {
	pids := holding("GPU_TEST_MARK=" + h.mark)
	for _, pid := range allPIDs() {
		if pid == os.Getpid() || slices.Contains(pids, pid) {
			continue
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if target, _ := os.Readlink(link); strings.HasPrefix(target, h.dir+"/") {
				pids = append(pids, pid)
				break
			}
		}
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
}

// endMarked gives what is left a moment to end by itself, then kills it. It
// returns what had to be killed.
func (h *host) endMarked() []string {
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = poll(patience, 50*time.Millisecond, "the rest to go", func() (bool, error) { return len(h.marked()) == 0, nil })
	var killed []string
	for range 3 { // a dying supervisor may leave its job for the next round
		left := h.marked()
		for _, pid := range left {
			killed = append(killed, fmt.Sprintf("%s (%d)", commOf(pid), pid))
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
		_ = pause(context.Background(), 200*time.Millisecond)
	}
	return killed
}
