package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asked is what the process of these tests does, by its word.
var asked = map[string]func(){
	"__test-who": func() {
		input, _ := io.ReadAll(os.Stdin)
		groups, _ := os.Getgroups()
		dir, _ := os.Getwd()
		ours := 0
		open, _ := os.ReadDir("/proc/self/fd")
		for _, fd := range open {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasSuffix(to, "/of-the-daemon") {
				ours++
			}
		}
		fmt.Printf("%s %d %d %v %s %d %d", input, os.Getuid(), os.Getgid(), groups, dir, len(os.Environ()), ours)
	},
	"__test-flood": func() {
		for {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
				os.Exit(3)
			}
		}
	},
	"__test-hang": func() { select {} },
	"__test-fail": func() { os.Exit(7) },
}

func TestAskAsHasTheUsersRightsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	t.Setenv("SECRET_OF_THE_DAEMON", "x")
	file, err := os.Create(t.TempDir() + "/of-the-daemon")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ann := User{Name: "ann", UID: 54321, GID: 54322, Groups: []int{54322, 54323}}
	out, err := AskAs(t.Context(), ann, "__test-who", []byte("hello"))
	if want := "hello 54321 54322 [54322 54323] / 0 0"; err != nil || string(out) != want {
		t.Errorf("%q, %v; expected %q", out, err, want)
	}
}

func TestAskAsIsBounded(t *testing.T) {
	me := User{Name: "me", UID: os.Geteuid(), GID: os.Getegid()}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, tt := range []struct {
		word string
		ctx  context.Context
		says string
	}{
		{"__test-flood", t.Context(), "printed more than"},
		{"__test-hang", short, "deadline exceeded"},
		{"__test-fail", t.Context(), "exit status 7"},
	} {
		if out, err := AskAs(tt.ctx, me, tt.word, nil); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d bytes, %v; expected %q", tt.word, len(out), err, tt.says)
		}
	}
}

func TestOnlyRootAsksAsOthers(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can become anybody")
	}
	if _, err := AskAs(t.Context(), User{Name: "root"}, "__test-who", nil); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
}

// askedWord runs the process of a test, if this is one.
func askedWord() bool {
	at := slices.IndexFunc(os.Args[1:], func(word string) bool { return asked[word] != nil })
	if at >= 0 {
		asked[os.Args[1+at]]()
	}
	return at >= 0
}
