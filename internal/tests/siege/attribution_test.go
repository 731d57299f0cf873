package siege

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

func init() { othersAttacks = append(othersAttacks, attributionAttacks...) }

// What bob wants to be counted as somebody else's.
var attributionAttacks = []attack{
	{"have one's own memory counted as another's job's", func(t *testing.T, c *camp) {
		simjob := filepath.Join(programs, "berth") + " simjob --hold 600 --vram "
		id := c.ann.submit(t, shell(simjob+"40"))[0]
		defer c.ann.cancel(t, id)
		testkit.Eventually(t, "its memory is seen", func() bool { return mostOf(c.ann.show(t, id)) == 40 })
		token := c.tokenOf(t, id)
		// bob's own process, with the token that everybody can see.
		card := c.ann.show(t, id).GPUIDs[0]
		cmd := c.bob.command(filepath.Join(programs, "berth"), "simjob", "--hold", "600", "--vram", "300", "--gpu", fmt.Sprint(card))
		cmd.Env = append(cmd.Env, "BERTH_SIM_DIR="+filepath.Join(c.stateDir, "sim"), fmt.Sprintf("BERTH_TOKEN=%s:%s:1", token, id))
		testkit.Must(t, cmd.Start())
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		// An answer is remembered for a moment, and a process in the middle of
		// its start shows no environment: so it is looked at for longer.
		var since time.Time
		testkit.Eventually(t, "bob's process was on the card for some time", func() bool {
			var cards []api.GPU
			c.root.mustAsk(t, "GET", "/v1/gpus", nil).into(t, &cards)
			for _, p := range cards[card].Processes {
				if p.PID != cmd.Process.Pid {
					continue
				}
				if p.Job != "" {
					t.Fatalf("it is job %s's", p.Job)
				}
				if since.IsZero() {
					since = time.Now()
				}
			}
			return !since.IsZero() && time.Since(since) > 4*time.Second
		})
		if most := mostOf(c.ann.show(t, id)); most != 40 {
			t.Errorf("ann's job is said to have used %d MiB", most)
		}
	}},
}

// mostOf is the most that a job was seen to use on one card.
func mostOf(d api.Detail) (most int64) {
	for _, mib := range d.PeakVRAMMiB {
		most = max(most, mib)
	}
	return most
}

// tokenOf finds the token of a job's supervisor the way anybody can: in its
// command line, and above the job's own process.
func (c *camp) tokenOf(t *testing.T, id string) string {
	t.Helper()
	for _, pid := range processes() {
		// Other daemons on this machine have a job of that number, too.
		if environ := procFile(pid, "environ"); strings.Contains(environ, "BERTH_JOB_ID="+id+"\x00") && strings.Contains(environ, c.dir+"/") {
			for _, other := range processes() {
				words := strings.Split(strings.TrimSuffix(procFile(other, "cmdline"), "\x00"), "\x00")
				token := words[len(words)-1]
				if len(words) == 2 && strings.HasSuffix(words[0], "berth-keep") && strings.Contains(environ, "BERTH_TOKEN="+token+":") {
					return token
				}
			}
		}
	}
	t.Fatalf("job %s has no supervisor that shows its token", id)
	return ""
}
