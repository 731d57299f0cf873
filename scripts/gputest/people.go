package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// madeUser is the user that is created if there is no ordinary one.
const madeUser = "berth-gpu-test"

// becomeOrdinary makes the jobs run as an ordinary user. If there is none, one
// is created, and removed at the end.
func (h *host) becomeOrdinary(ctx context.Context) error {
	if !h.Root {
		return errors.New("-users needs root")
	}
	if h.useUser("") == nil {
		return nil
	}
	if text, err := exec.CommandContext(ctx, "useradd", "--create-home", "--shell", "/bin/sh", madeUser).CombinedOutput(); err != nil {
		return fmt.Errorf("create an ordinary user: %s", lastLine(string(text), err))
	}
	h.undo = append(h.undo, func() { _ = exec.Command("userdel", "--remove", madeUser).Run() })
	return h.useUser(madeUser)
}

// useUser takes the user of that name, or the first ordinary one with a home
// and a shell.
func (h *host) useUser(name string) error {
	file, err := os.Open("/etc/passwd")
	if err != nil {
		return fmt.Errorf("list users: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 7 {
			continue
		}
		uid, uidErr := strconv.Atoi(fields[2])
		gid, gidErr := strconv.Atoi(fields[3])
		_, homeErr := os.Stat(fields[5])
		ordinary := uidErr == nil && gidErr == nil && homeErr == nil && uid >= 1000 && uid < 60000 && !strings.HasSuffix(fields[6], "nologin") && !strings.HasSuffix(fields[6], "false")
		if !ordinary || name != "" && fields[0] != name {
			continue
		}
		h.User, h.home = fields[0], fields[5]
		h.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return nil
	}
	return fmt.Errorf("no user %q", name)
}
