package metrics

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// program adds what Prometheus's own library says of a Go program.
func (p *page) program() {
	var pauses debug.GCStats
	pauses.PauseQuantiles = make([]time.Duration, 5)
	debug.ReadGCStats(&pauses)
	gc := newFamily("summary", "go_gc_duration_seconds", "A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.", []float64{0, 0.25, 0.5, 0.75, 1})
	s := gc.of(nil)
	s.value, s.count = pauses.PauseTotal.Seconds(), float64(pauses.NumGC)
	for i, pause := range pauses.PauseQuantiles {
		s.buckets[i] = pause.Seconds()
	}
	p.families = append(p.families, gc)
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	p.gauge("go_gc_gogc_percent", "Heap size target percentage.", float64(percent))
	p.gauge("go_gc_gomemlimit_bytes", "Go runtime memory limit.", float64(debug.SetMemoryLimit(-1)))
	p.gauge("go_goroutines", "Number of goroutines that currently exist.", float64(runtime.NumGoroutine()))
	p.add("gauge", "go_info", "Information about the Go environment.", "version").set(1, runtime.Version())
	p.gauge("go_sched_gomaxprocs_threads", "The current runtime.GOMAXPROCS setting.", float64(runtime.GOMAXPROCS(0)))
	threads, _ := runtime.ThreadCreateProfile(nil)
	p.gauge("go_threads", "Number of OS threads created.", float64(threads))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for _, g := range []struct {
		name, help string
		value      uint64
	}{
		{"alloc_bytes", "Number of bytes allocated in heap and currently in use.", m.Alloc},
		{"buck_hash_sys_bytes", "Number of bytes used by the profiling bucket hash table.", m.BuckHashSys},
		{"gc_sys_bytes", "Number of bytes used for garbage collection system metadata.", m.GCSys},
		{"heap_alloc_bytes", "Number of heap bytes allocated and currently in use.", m.HeapAlloc},
		{"heap_idle_bytes", "Number of heap bytes waiting to be used.", m.HeapIdle},
		{"heap_inuse_bytes", "Number of heap bytes that are in use.", m.HeapInuse},
		{"heap_objects", "Number of currently allocated objects.", m.HeapObjects},
		{"heap_released_bytes", "Number of heap bytes released to OS.", m.HeapReleased},
		{"heap_sys_bytes", "Number of heap bytes obtained from system.", m.HeapSys},
		{"mcache_inuse_bytes", "Number of bytes in use by mcache structures.", m.MCacheInuse},
		{"mcache_sys_bytes", "Number of bytes used for mcache structures obtained from system.", m.MCacheSys},
		{"mspan_inuse_bytes", "Number of bytes in use by mspan structures.", m.MSpanInuse},
		{"mspan_sys_bytes", "Number of bytes used for mspan structures obtained from system.", m.MSpanSys},
		{"next_gc_bytes", "Number of heap bytes when next garbage collection will take place.", m.NextGC},
		{"other_sys_bytes", "Number of bytes used for other system allocations.", m.OtherSys},
		{"stack_inuse_bytes", "Number of bytes obtained from system for stack allocator.", m.StackInuse},
		{"stack_sys_bytes", "Number of bytes obtained from system for stack allocator and threads.", m.StackSys},
		{"sys_bytes", "Number of bytes obtained from system.", m.Sys},
	} {
		p.gauge("go_memstats_"+g.name, g.help, float64(g.value))
	}
	p.gauge("go_memstats_last_gc_time_seconds", "Number of seconds since 1970 of last garbage collection.", float64(m.LastGC)/1e9)
	p.counter("go_memstats_alloc_bytes_total", "Total number of bytes allocated in heap until now, even if released already.", float64(m.TotalAlloc))
	p.counter("go_memstats_frees_total", "Total number of heap objects frees.", float64(m.Frees))
	p.counter("go_memstats_mallocs_total", "Total number of heap objects allocated, both live and gc-ed.", float64(m.Mallocs))
}

// process adds what Prometheus's own library says of a process. What the system
// does not tell is left out.
func (p *page) process(since time.Time) {
	p.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", float64(since.UnixMilli())/1000)
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		p.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", float64(used.Utime.Nano()+used.Stime.Nano())/1e9)
	}
	for _, l := range []struct {
		name, help string
		resource   int
	}{
		{"process_max_fds", "Maximum number of open file descriptors.", unix.RLIMIT_NOFILE},
		{"process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", unix.RLIMIT_AS},
	} {
		var limit unix.Rlimit
		if unix.Getrlimit(l.resource, &limit) == nil {
			p.gauge(l.name, l.help, float64(limit.Cur))
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.gauge("process_open_fds", "Number of open file descriptors.", float64(len(open)-1)) // one reads the directory
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		sizes := append(strings.Fields(string(text)), "", "")
		page := float64(os.Getpagesize())
		p.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", counted(sizes[0])*page)
		p.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", counted(sizes[1])*page)
	}
	if text, err := os.ReadFile("/proc/self/net/dev"); err == nil {
		var received, sent float64
		for line := range strings.Lines(string(text)) {
			if _, counts, found := strings.Cut(line, ":"); found {
				if fields := strings.Fields(counts); len(fields) > 8 {
					received, sent = received+counted(fields[0]), sent+counted(fields[8])
				}
			}
		}
		p.counter("process_network_receive_bytes_total", "Number of bytes received by the process over the network.", received)
		p.counter("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.", sent)
	}
}

// counted is a number of the system; NaN: it is not one.
func counted(s string) float64 {
	number, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}
