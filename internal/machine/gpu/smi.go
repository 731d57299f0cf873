package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/text"
)

// errNoDriver means that nvidia-smi is missing or finds no usable card.
var errNoDriver = errors.New("no NVIDIA GPU can be read")

// smiDeadline bounds one call of nvidia-smi, which takes well under a second
// on a healthy machine.
const smiDeadline = 10 * time.Second

const (
	smiCSV            = "--format=csv,noheader,nounits"
	smiProcessesQuery = "--query-compute-apps=gpu_uuid,pid,used_memory"
)

// smiSource reads the cards through nvidia-smi.
//
// Memory comes from --query-gpu. Processes come from "-q -d PIDS", a report
// for humans, because it is the only cheap way to distinguish a desktop's
// processes from a job's: --query-compute-apps lists compute processes only,
// so that a desktop looks like unexplained memory, and the XML report takes
// several times as long and cannot be limited to processes. If the report
// cannot be parsed, --query-compute-apps is used instead; if neither works,
// the sample marks processes as unknown.
type smiSource struct {
	mu          sync.Mutex
	command     *smiCommand
	fields      []string          // that this driver is known to support
	noReport    bool              // the report was never understood on this machine
	uuidByBusID map[string]string // the report names cards by bus id
	topology    topology
	driver      atomic.Pointer[string] // read without waiting for a call
	places      map[string]Device      // from the last reading, by bus id
}

var (
	_ Source    = (*smiSource)(nil)
	_ describer = (*smiSource)(nil)
)

// findSMI finds nvidia-smi and checks that it can read at least one card.
func findSMI() (*smiSource, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDriver, errNoSMI)
	}
	s := &smiSource{command: &smiCommand{path: path, deadline: smiDeadline}, fields: slices.Concat(smiBase, smiMore), places: map[string]Device{}}
	ctx := context.Background()
	if _, err := s.Sample(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDriver, err)
	}
	if out, err := s.command.output(ctx, "topo", "-m"); err == nil {
		s.topology = parseTopology(out)
	}
	return s, nil
}

// Name is the name of the source, for display.
func (s *smiSource) Name() string { return "nvidia-smi" }

// Cheap is false: a sample takes two processes and about 50 ms.
func (s *smiSource) Cheap() bool { return false }

// Close stops the call in progress.
func (s *smiSource) Close() error {
	s.command.abandon()
	return nil
}

// Sample reads memory before processes: a process that starts in between is
// listed and explains nothing yet, which is harmless. The other way round, its
// memory would look unexplained.
func (s *smiSource) Sample(ctx context.Context) (Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sample := Sample{At: time.Now()}
	rows, err := s.memory(ctx)
	if err != nil {
		return Sample{}, err
	}
	sample.Problems, sample.Faults = rows.problems, rows.faults
	for _, d := range rows.devices {
		d.NUMA = -1
		if node, known := s.topology.numa[d.Index]; known {
			d.NUMA = node
		}
		d.Links = maps.Clone(s.topology.links[d.Index])
		sample.Devices = append(sample.Devices, d)
	}
	lists, err := s.processes(ctx, sample.Devices)
	if err != nil {
		sample.Problems = append(sample.Problems, err.Error())
	}
	for i := range sample.Devices {
		d := &sample.Devices[i]
		list, known := lists[d.UUID]
		d.Processes, d.ProcessesKnown = list.processes, known && !list.incomplete
	}
	return sample, nil
}

// memory queries the cards. A field that the driver does not support is
// omitted from then on. An answer with too few columns comes from a tool that
// ignores the list of fields; then only the oldest fields are used.
func (s *smiSource) memory(ctx context.Context) (smiRows, error) {
	var rows smiRows
	var out []byte
	var err error
	for range len(s.fields) + 1 {
		out, err = s.command.output(ctx, "--query-gpu="+strings.Join(s.fields, ","), smiCSV)
		if field, refused := refusedField(out, s.fields); err != nil && refused {
			s.fields = slices.DeleteFunc(slices.Clone(s.fields), func(other string) bool { return other == field })
			continue
		}
		var short bool
		rows, short = parseRows(out, s.fields)
		base := slices.DeleteFunc(slices.Clone(smiBase), func(field string) bool { return !slices.Contains(s.fields, field) })
		if !short || len(base) == len(s.fields) {
			break
		}
		s.fields = base
	}
	if len(rows.devices) == 0 {
		return smiRows{}, fmt.Errorf("nvidia-smi lists no readable GPU: %w", cmp.Or(err, rows.reason(out)))
	}
	if err != nil {
		rows.problem("%v", err)
	}
	s.learn(&rows)
	return rows, nil
}

// learn remembers where the cards are.
func (s *smiSource) learn(rows *smiRows) {
	rows.lost(s.places)
	s.driver.Store(&rows.driver)
	for _, d := range rows.there {
		if d.BusID == "" {
			continue
		}
		if s.uuidByBusID == nil {
			s.uuidByBusID = map[string]string{}
		}
		s.uuidByBusID[d.BusID], s.places[d.BusID] = d.UUID, d
	}
	if len(s.places) > maxPlaces {
		clear(s.places)
	}
}

// Facts are what nvidia-smi reports about the driver.
func (s *smiSource) Facts() Facts {
	facts := Facts{Source: s.command.path}
	if driver := s.driver.Load(); driver != nil {
		facts.Driver = text.Said(*driver)
	}
	return facts
}

// processes are the processes of each card, by UUID. If a card is missing, its
// processes are unknown.
func (s *smiSource) processes(ctx context.Context, devices []Device) (map[string]processList, error) {
	if !s.noReport {
		lists, err := s.report(ctx)
		if err == nil {
			return lists, nil
		}
		if errors.Is(err, errStuck) || ctx.Err() != nil {
			return nil, err
		}
		s.noReport = s.uuidByBusID == nil
	}
	out, err := s.command.output(ctx, smiProcessesQuery, smiCSV)
	if err != nil {
		return nil, fmt.Errorf("list GPU processes: %w", err)
	}
	return parseComputeApps(out, devices)
}

// report reads "-q -d PIDS". It names cards by bus id, which is looked up when
// a new card appears.
func (s *smiSource) report(ctx context.Context) (map[string]processList, error) {
	out, err := s.command.output(ctx, "-q", "-d", "PIDS")
	if err != nil {
		return nil, fmt.Errorf("list GPU processes: %w", err)
	}
	byBusID, err := parseReport(out)
	if err != nil {
		return nil, err
	}
	for range 2 {
		lists := make(map[string]processList, len(byBusID))
		for busID, list := range byBusID {
			if uuid, known := s.uuidByBusID[busID]; known {
				lists[uuid] = list
			}
		}
		if len(lists) == len(byBusID) {
			return lists, nil
		}
		out, err := s.command.output(ctx, "--query-gpu=uuid,pci.bus_id", smiCSV)
		if err != nil {
			return nil, fmt.Errorf("list GPUs by bus: %w", err)
		}
		uuids := parseBusIDs(out)
		if len(uuids) == 0 {
			return nil, errors.New("list GPUs by bus: no readable lines")
		}
		s.uuidByBusID = uuids
	}
	return nil, errors.New("nvidia-smi reports processes on a GPU that it does not list")
}
