package gpuscheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/machine/site"
)

// logger writes the scheduler's messages to the terminal and to its log.
type logger struct {
	mu   sync.Mutex
	out  io.Writer
	file *site.Log
	once map[string]bool
}

func openLog(out io.Writer) (*logger, error) {
	file, err := site.OpenLog("gpu_scheduler.log", site.LogBytes)
	if err != nil {
		return nil, err
	}
	return &logger{out: out, file: file, once: map[string]bool{}}, nil
}

func (l *logger) say(level, format string, args ...any) {
	line := fmt.Sprintf("%s - %s - %s\n", time.Now().Format(time.DateTime), level, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	// A closed terminal must not stop the scheduler.
	_, _ = io.WriteString(l.out, line)
	_, _ = io.WriteString(l.file, line)
}

func (l *logger) info(format string, args ...any) { l.say("INFO", format, args...) }
func (l *logger) warn(format string, args ...any) { l.say("WARNING", format, args...) }
func (l *logger) fail(format string, args ...any) { l.say("ERROR", format, args...) }

// warnOnce gives the same warning only once.
func (l *logger) warnOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	repeated := l.once[text]
	l.once[text] = true
	l.mu.Unlock()
	if !repeated {
		l.warn("%s", text)
	}
}

// maxLine bounds an incomplete line.
const maxLine = 64 << 10

// output writes the output of a job, each line with the job's id. A progress bar
// ends its lines with a carriage return.
func (l *logger) output(prefix string) *frontend.Lines {
	return &frontend.Lines{Ends: "\r\n", Most: maxLine, Each: func(line []byte) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, _ = fmt.Fprintf(l.out, "%s%s", prefix, line)
		return nil
	}}
}

// streams show the output of running jobs.
type streams struct {
	shared
	open map[string]chan struct{} // by job; closed when all is shown
	wait sync.WaitGroup
}

// show shows the output of an attempt until it ends. If the attempt began before
// this scheduler, only new output is shown; the log has the rest.
func (s *streams) show(ctx context.Context, v job.View, adopted bool) {
	if s.opt.screen || s.open[v.ID] != nil {
		return
	}
	q := api.LogQuery{ID: v.ID, Attempt: v.Attempt, Follow: true}
	if adopted && v.Log != nil {
		if info, err := os.Stat(*v.Log); err == nil {
			q.Offset = info.Size()
		}
	}
	done := make(chan struct{})
	s.open[v.ID] = done
	s.wait.Go(func() {
		defer close(done)
		log, err := s.client.Log(ctx, q)
		if err == nil {
			out := s.log.output("[" + jobID(v) + "] ")
			_, err = io.Copy(out, log)
			out.Flush("\n")
			_ = log.Close() // it was only read
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
			s.log.warn("job %s: cannot show its output: %v", jobID(v), err)
		}
	})
}

// after runs f when all output of an attempt was shown, so that its end is
// the last message about it.
func (s *streams) after(id string, f func()) {
	done := s.open[id]
	delete(s.open, id)
	if done == nil {
		f()
		return
	}
	s.wait.Go(func() {
		<-done
		f()
	})
}
