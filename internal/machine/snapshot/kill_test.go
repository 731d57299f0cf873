package snapshot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

// copierVariable makes this program a client that copies a tree, for the place in
// the next argument.
const copierVariable = "SNAPSHOT_TEST_COPIER"

func TestMain(m *testing.M) {
	if place := os.Getenv(copierVariable); place != "" {
		fmt.Println("ready")
		_, err := Place{Dir: place, Limit: DefaultLimit}.Make(context.Background(), Ask{Queue: queue, Dir: os.Args[1], Tree: job.SnapshotAuto})
		fmt.Println(err)
		return
	}
	os.Exit(m.Run())
}

// TestAKilledClientLeavesNoHalfSnapshot: whatever moment it is killed at, a
// snapshot that exists is complete, and the rest is removed later.
func TestAKilledClientLeavesNoHalfSnapshot(t *testing.T) {
	p, root := here(t)
	seed := rand.New(rand.NewPCG(1, 2))
	files := []string{}
	for i := range 300 {
		files = append(files, fmt.Sprintf("dir%d/file%d=%d", i%20, i, i))
	}
	tree(t, root, files...)
	half, whole := 0, 0
	for round := range 25 {
		tree(t, root, fmt.Sprintf("round=%d", round)) // another snapshot each time
		cmd := exec.Command(os.Args[0], root)
		cmd.Env = append(os.Environ(), copierVariable+"="+p.Dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		if _, err := out.Read(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(seed.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if rest, _ := filepath.Glob(p.Dir + "/tmp-*"); len(rest) > 0 {
			half++
		}
		found, err := os.ReadDir(p.Dir)
		must(t, err)
		for _, item := range found {
			if !isID(item.Name()) {
				continue
			}
			whole++
			copied := contents(t, filepath.Join(p.Dir, item.Name(), "project"))
			delete(copied, "round")
			want := contents(t, root)
			delete(want, "round")
			if diff := cmp.Diff(want, copied); diff != "" {
				t.Fatalf("round %d: %s is not complete:\n%s", round, item.Name(), diff)
			}
		}
		must(t, p.Remove(context.Background(), queue, time.Now().Add(2*leaseTime), func(context.Context) (map[string]bool, error) { return nil, nil }))
		if rest, _ := filepath.Glob(p.Dir + "/tmp-*"); len(rest) > 0 {
			t.Fatalf("round %d: %v stays", round, rest)
		}
	}
	t.Logf("%d times there was a half, %d times a whole one", half, whole)
}
