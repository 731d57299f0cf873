package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// smiRows is the answer to --query-gpu: the cards that could be read, and a
// sentence for each line that could not.
type smiRows struct {
	devices  []Device
	faults   []Fault
	there    []Device // all cards that have a row, readable or not
	problems []string
	lines    []string // that are not about a card
	driver   string   // its version
}

// maxProblems bounds the sentences about one answer.
const maxProblems = 16

func (r *smiRows) problem(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, text.Said(fmt.Sprintf(format, args...)))
	}
}

// reason is why an answer has no usable card.
func (r *smiRows) reason(out []byte) error {
	if len(r.problems) > 0 {
		return errors.New(r.problems[0])
	}
	return errors.New(firstLine(out))
}

// partitioned is why a card with MIG is not a device here.
const partitioned = "is partitioned (MIG), and using its parts needs berth-gpu"

// parseRows reads the answer for these fields. A card without a readable total
// or use is a fault: nothing may be placed on it. short means that every row
// has fewer columns than requested.
func parseRows(out []byte, fields []string) (rows smiRows, short bool) {
	seen := map[int]bool{}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		row, whole := splitRow(line, fields)
		index, err := strconv.Atoi(row["index"])
		if !whole || err != nil || index < 0 || seen[index] {
			rows.problem("nvidia-smi printed: %s", line)
			rows.lines = append(rows.lines, line)
			columns := splitCSV(line)
			_, err := strconv.Atoi(columns[0])
			short = short || err == nil && len(columns) >= len(smiBase)-1
			continue
		}
		seen[index] = true
		rows.add(index, row)
	}
	return rows, short && len(seen) == 0
}

func (r *smiRows) add(index int, row smiRow) {
	d := Unknown(index, row["uuid"], row["name"])
	row.describe(&d)
	r.there = append(r.there, d)
	total, totalKnown := parseMiB(row["memory.total"])
	used, usedKnown := parseMiB(row["memory.used"])
	r.driver = cmp.Or(r.driver, row["driver_version"])
	switch {
	case strings.EqualFold(row["mig.mode.current"], "Enabled"):
		r.fault(d, FaultUnreadable, partitioned)
	case !totalKnown || !usedKnown || total == 0:
		kind := FaultUnreadable
		if reportsLoss(row["memory.total"]) || reportsLoss(row["memory.used"]) {
			kind = FaultLost
		}
		r.fault(d, kind, fmt.Sprintf("does not report its memory: total %s, used %s", row["memory.total"], row["memory.used"]))
	default:
		d.TotalMiB, d.UsedMiB = total, used
		d.ReservedMiB, _ = parseMiB(row["memory.reserved"])
		r.devices = append(r.devices, d)
	}
}

// fault records a card that cannot be used.
func (r *smiRows) fault(d Device, kind, written string) {
	r.problem("gpu%d (%s) %s", d.Index, d.Name, written)
	r.faults = append(r.faults, Fault{Index: d.Index, UUID: text.Said(d.UUID), Kind: kind, Text: text.Said(written)})
}

// reportsLoss reports whether nvidia-smi says that a card has fallen off the
// bus.
func reportsLoss(text string) bool {
	return strings.Contains(text, "GPU is lost") || strings.Contains(text, "Unknown Error")
}

// lost finds cards that a line of their own reports as lost:
//
//	Unable to determine the device handle for GPU 0000:07:00.0: GPU is lost.
func (r *smiRows) lost(known map[string]Device) {
	for _, line := range r.lines {
		match := busIDInText().FindString(line)
		d, ok := known[normalBusID(match)]
		there := func(other Device) bool { return other.UUID == d.UUID }
		if ok && reportsLoss(line) && !slices.ContainsFunc(r.devices, there) {
			r.faults = append(r.faults, Fault{Index: d.DriverIndex, UUID: d.UUID, Kind: FaultLost, Text: text.Said(line)})
		}
	}
}

var busIDInText = text.Pattern(`[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]`)

// processList is a card's processes as far as they could be read.
type processList struct {
	processes  []Process
	incomplete bool // an unreadable line: a process may be missing
}

// parseComputeApps reads gpu_uuid, pid, used_memory. Cards without processes
// are not listed, so each of devices counts as known; but an unreadable line
// may be about any of them. A process on a MIG part names the part, not the
// card: such cards, which report no utilisation, are then unknown.
func parseComputeApps(out []byte, devices []Device) (map[string]processList, error) {
	lists := map[string]processList{}
	for _, d := range devices {
		lists[d.UUID] = processList{}
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "No running processes") {
			continue
		}
		fields := splitCSV(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("list GPU processes: nvidia-smi printed: %s", text.Said(line))
		}
		if strings.HasPrefix(fields[0], "MIG-") {
			for _, d := range devices {
				if d.UtilPct < 0 {
					lists[d.UUID] = processList{incomplete: true}
				}
			}
			continue
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil || pid <= 0 || !strings.HasPrefix(fields[0], "GPU-") {
			return nil, fmt.Errorf("list GPU processes: nvidia-smi printed: %s", text.Said(line))
		}
		list := lists[fields[0]]
		list.processes = append(list.processes, Process{PID: pid, UsedMiB: parseProcessMiB(fields[2])})
		lists[fields[0]] = list
	}
	return lists, nil
}

// parseBusIDs reads uuid, pci.bus_id.
func parseBusIDs(out []byte) map[string]string {
	uuids := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if fields := splitCSV(strings.TrimSpace(line)); len(fields) == 2 && strings.HasPrefix(fields[0], "GPU-") {
			uuids[cmp.Or(normalBusID(fields[1]), fields[1])] = fields[0]
		}
	}
	return uuids
}

// parseReport reads the report on processes:
//
//	GPU 00000000:07:00.0
//	    Processes
//	        Process ID                        : 4242
//	            Type                          : C+G
//	            Used GPU Memory               : 1542 MiB
//
// Cards are named as in pci.bus_id. "G" alone is a graphics-only process.
func parseReport(out []byte) (map[string]processList, error) {
	lists := map[string]processList{}
	busID, lastPID := "", false
	for line := range strings.Lines(string(out)) {
		if rest, found := strings.CutPrefix(line, "GPU "); found {
			busID, lastPID = cmp.Or(normalBusID(rest), strings.TrimSpace(rest)), false
			lists[busID] = processList{incomplete: true} // until its processes are listed
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if busID == "" || key == "" {
			continue
		}
		list := lists[busID]
		switch key {
		case "Processes":
			list.incomplete = value != "" && value != "None"
		case "Process ID":
			pid, err := strconv.Atoi(value)
			lastPID = err == nil && pid > 0
			if lastPID {
				list.processes = append(list.processes, Process{PID: pid, UsedMiB: -1})
			} else {
				list.incomplete = true
			}
		case "Type":
			if lastPID {
				list.processes[len(list.processes)-1].Graphics = value == "G"
			}
		case "Used GPU Memory":
			if lastPID {
				list.processes[len(list.processes)-1].UsedMiB = parseProcessMiB(value)
			}
		}
		lists[busID] = list
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("list GPU processes: nvidia-smi printed: %s", firstLine(out))
	}
	return lists, nil
}

// splitCSV splits a line of nvidia-smi's CSV, which has no quoting.
func splitCSV(line string) []string {
	fields := strings.Split(line, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields
}

// parseMiB reads a number of MiB. "[N/A]", "[Not Supported]", "ERR!" and the
// like mean unknown.
func parseMiB(text string) (int64, bool) {
	mib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "MiB")), 10, 64)
	if err != nil || mib < 0 || mib > 1<<40 {
		return 0, false
	}
	return mib, true
}

func parseProcessMiB(text string) int64 {
	if mib, known := parseMiB(text); known {
		return mib
	}
	return -1
}
