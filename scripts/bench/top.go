package main

import (
	"fmt"
	"io"
	"time"

	"github.com/creack/pty"

	"berth/internal/api"
)

// top: the CPU time of berth top on a large terminal with 10,000 queued jobs.
func (b *bench) top() {
	s := b.serve("top")
	defer s.stop()
	specs := make([]api.Spec, 10_001)
	for i := range specs { // the first holds both GPUs, and the others wait for it
		specs[i] = api.Spec{Command: api.Command{Shell: "sleep 45"}, GPUs: "2", Name: api.Text(fmt.Sprintf("job-%d", i))}
	}
	s.submit(specs...)
	cmd := s.command("top")
	cmd.Stdout, cmd.Stderr = nil, nil
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})
	check(err)
	defer terminal.Close()
	go io.Copy(io.Discard, terminal)
	share := shareOf(cmd, 3*time.Second, 20*time.Second)
	b.row("berth top, 200x60, with 10,000 queued jobs, of one core", fmt.Sprintf("%.2f %%", share), "< 2 %", share < 2)
}
