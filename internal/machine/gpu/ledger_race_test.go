package gpu

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperBooker is another berth. On "race N" it books the one card N times,
// each time leaving the lock while it holds the card, and counts how often it
// found the card taken. A marker file tells whether two had it at once.
// "book" and "others" do one thing each.
func helperBooker() {
	l, err := OpenLedger(os.Getenv("BERTH_LEDGER_DIR"), os.Getenv("INSTANCE"))
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var rounds int
		switch line := lines.Text(); {
		case line == "book":
			fmt.Println(l.Publish([]Entry{booked(os.Getenv("INSTANCE") + "/1")}))
		case line == "others":
			entries, err := l.Others()
			fmt.Println(len(entries), err, l.Notes())
		default:
			fmt.Sscanf(line, "race %d", &rounds)
			fmt.Println(race(l, rounds))
		}
	}
}

func race(l *Ledger, rounds int) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	marker := filepath.Join(l.Dir(), "marker")
	taken := 0
	for done := 0; done < rounds; {
		if err := l.Lock(ctx); err != nil {
			return err.Error()
		}
		others, err := l.Others()
		if err != nil {
			return err.Error()
		}
		if len(others) > 0 {
			taken++
			l.Unlock()
			continue
		}
		if err := l.Publish([]Entry{booked("race")}); err != nil {
			return err.Error()
		}
		l.Unlock()
		f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return "overbooked: " + err.Error()
		}
		f.Close()
		<-time.After(lockPoll) // long enough for the other to look
		os.Remove(marker)
		if err := l.Publish(nil); err != nil {
			return err.Error()
		}
		done++
	}
	return fmt.Sprintf("done, taken %v", taken > 0)
}

func startBooker(t *testing.T, dir, instance string) *helper {
	t.Helper()
	return startBookerAs(t, nil, dir, instance)
}

func startBookerAs(t *testing.T, as *syscall.Credential, dir, instance string) *helper {
	t.Helper()
	h := startHelperAs(t, as, "booker", "BERTH_LEDGER_DIR="+dir, "INSTANCE="+instance)
	if got := h.answer(); got != "ready" {
		t.Fatal(got)
	}
	return h
}

func TestLedgerTwoBerthsNeverOverbookACard(t *testing.T) {
	dir := t.TempDir()
	a, b := startBooker(t, dir, "a"), startBooker(t, dir, "b")
	a.tell("race 200")
	b.tell("race 200")
	for _, h := range []*helper{a, b} {
		if got := h.answer(); got != "done, taken true" {
			t.Error(got)
		}
	}
}

func TestLedgerIsSharedByRootAndUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become someone else")
	}
	parent, err := os.MkdirTemp("", "berth-ledger-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o777); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "ledger")
	defer syscall.Umask(syscall.Umask(0o077))
	first := startBookerAs(t, &syscall.Credential{Uid: 65534, Gid: 65534}, dir, "user")
	root := openLedger(t, dir, "root")
	second := startBookerAs(t, &syscall.Credential{Uid: 65533, Gid: 65533}, dir, "other")
	publish(t, root, booked("root/1"))
	for _, h := range []*helper{first, second} {
		if got := h.ask("book"); got != "<nil>" {
			t.Fatal(got)
		}
		if got := h.ask("race 0"); got != "done, taken false" {
			t.Error(got)
		}
	}
	for _, h := range []*helper{first, second} {
		if got := h.ask("others"); !strings.HasPrefix(got, "2 <nil>") {
			t.Errorf("a user sees %s", got)
		}
	}
	lockLedger(t, root)
	if keys := otherKeys(t, root); len(keys) != 2 {
		t.Errorf("root sees %v", keys)
	}
	root.Unlock()
}
