package batch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
)

func TestALivePipe(t *testing.T) {
	t.Parallel()
	w := sourceAt(filepath.Join(t.TempDir(), "pipe"))
	w.opt.Watch = true
	mkfifo(t, w.opt.File)
	first, err := w.read(context.Background(), nil)
	if err != nil || len(first.Lines) > 0 {
		t.Fatalf("%q, %v", commands(first), err)
	}
	in, err := os.OpenFile(w.opt.File, os.O_WRONLY, 0)
	testkit.Must(t, err)
	comes := func(want string) (complaint string) {
		t.Helper()
		testkit.Eventually(t, "there is "+want, func() bool {
			var file jobfile.File
			var changed bool
			if file, changed, complaint = w.Look(); !changed {
				return false
			}
			if got := commands(file); got != want {
				t.Fatalf("there is %q, want %q", got, want)
			}
			return true
		})
		return complaint
	}
	in.WriteString("a\nb")
	comes("a") // b may still grow
	in.WriteString("c\n[vram=] d\ne\n")
	if said := comes("a bc e"); !strings.Contains(said, "skipped: ") || !strings.Contains(said, ":3: ") {
		t.Errorf("of the mistake it says %q", said)
	}
	if !w.canGrow() {
		t.Error("it has ended, though the pipe is open")
	}
	in.WriteString("last")
	in.Close()
	if said := comes("a bc e last"); said != "" {
		t.Errorf("it complains again: %q", said)
	}
	testkit.Eventually(t, "it has ended", func() bool { w.Look(); return !w.canGrow() })
}
