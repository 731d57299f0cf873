package gpu

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// The fields of a sample. Placement needs the base fields. The name may
// contain commas, so the fields after it are counted from the end. A driver
// need not support the others.
var (
	smiBase = []string{"index", "uuid", "name", "memory.total", "memory.reserved", "memory.used", "utilization.gpu"}
	smiMore = []string{
		"pci.bus_id", "temperature.gpu", "power.draw", "power.limit", "clocks.sm", "clocks.mem",
		"ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.volatile.total",
		"remapped_rows.correctable", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure",
		"retired_pages.pending", "gpu_recovery_action", "mig.mode.current", "driver_version",
	}
)

// smiNamed is the number of fields before those counted from the end.
const smiNamed = 3

// neededField reports whether placement needs a field.
func neededField(field string) bool {
	return slices.Contains(smiBase, field) && field != "memory.reserved" && field != "utilization.gpu"
}

// refusedField is the field that nvidia-smi does not support:
//
//	Field "memory.reserved" is not a valid field to query.
func refusedField(out []byte, fields []string) (string, bool) {
	line, _, found := bytes.Cut(out, []byte("is not a valid field"))
	if !found {
		return "", false
	}
	words := strings.Split(string(line), `"`)
	if len(words) < 3 {
		return "", false
	}
	field := words[len(words)-2]
	return field, slices.Contains(fields, field) && !neededField(field)
}

// smiRow is one card's answer.
type smiRow map[string]string

// splitRow splits a line into columns.
func splitRow(line string, fields []string) (smiRow, bool) {
	columns := splitCSV(line)
	if len(columns) < len(fields) {
		return nil, false
	}
	rest := len(fields) - smiNamed
	row := smiRow{"index": columns[0], "uuid": columns[1], "name": strings.Join(columns[2:len(columns)-rest], ", ")}
	for i, field := range fields[smiNamed:] {
		row[field] = columns[len(columns)-rest+i]
	}
	return row, true
}

// describe takes in the fields that are for display only. Missing ones stay
// unknown.
func (r smiRow) describe(d *Device) {
	d.BusID = normalBusID(r["pci.bus_id"])
	if pct, ok := r.number("utilization.gpu"); ok && pct <= 100 {
		d.UtilPct = pct
	}
	for field, value := range map[string]*float64{"temperature.gpu": &d.TempC, "power.draw": &d.PowerW, "power.limit": &d.PowerLimitW} {
		if number, ok := r.number(field); ok {
			*value = number
		}
	}
	for field, value := range map[string]*int{"clocks.sm": &d.SMClockMHz, "clocks.mem": &d.MemClockMHz} {
		if number, ok := r.number(field); ok && number < 1e6 {
			*value = int(number)
		}
	}
	r.condition(&d.Condition)
}

func (r smiRow) condition(c *Condition) {
	for field, value := range map[string]*int64{
		"ecc.errors.uncorrected.volatile.total": &c.UncorrectedECC, "ecc.errors.corrected.volatile.total": &c.CorrectedECC,
	} {
		if count, ok := r.count(field); ok {
			*value = count
		}
	}
	corrected, ok1 := r.count("remapped_rows.correctable")
	uncorrected, ok2 := r.count("remapped_rows.uncorrectable")
	if ok1 && ok2 {
		c.RemappedRows = corrected + uncorrected
	}
	c.RowsPending = r["remapped_rows.pending"] == "Yes" || r["retired_pages.pending"] == "Yes"
	c.RowsFailed = r["remapped_rows.failure"] == "Yes"
	c.Recovery = recoveryWord(r["gpu_recovery_action"])
}

// number reads a non-negative value. "[N/A]", "[Not Supported]", "ERR!" and
// the like mean unknown.
func (r smiRow) number(field string) (float64, bool) {
	text, _, _ := strings.Cut(r[field], " ") // a unit may follow
	number, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	return number, err == nil && number >= 0 && number < 1e12
}

func (r smiRow) count(field string) (int64, bool) {
	count, err := strconv.ParseInt(r[field], 10, 64)
	return count, err == nil && count >= 0 && count < 1<<60
}

// recoveryWord translates nvidia-smi's recovery action; "" if it is unknown.
func recoveryWord(text string) string {
	text = strings.ToLower(text)
	has := func(word string) bool { return strings.Contains(text, word) }
	switch {
	case text == "none":
		return RecoveryNone
	case has("drain") && has("reset"):
		return RecoveryDrainAndReset
	case has("drain"):
		return RecoveryDrain
	case has("fabric"):
		return RecoveryFabric
	case has("bus reset"):
		return RecoveryBusReset
	case has("reboot"):
		return RecoveryReboot
	case has("reset"):
		return RecoveryReset
	}
	return ""
}
