package slurm

import (
	"strings"
	"time"

	"berth/internal/text"
)

// RememberedCommand is the arguments of scontrol for a job that slurmctld may still
// remember: without accounting, that is all there is.
func RememberedCommand(id string) []string { return []string{"--oneliner", "show", "job", id} }

// noTask is the number of an array whose waiting tasks were all cancelled.
const noTask = "4294967294"

// Remembered reads what scontrol printed. A waiting task of an array that was
// cancelled leaves no trace; if all were, the id is that of the array alone.
func Remembered(out string) (accounts []Account) {
	for row := range strings.Lines(out) {
		cells := map[string]string{}
		for _, word := range strings.Fields(row) {
			key, cell, _ := strings.Cut(word, "=")
			if _, said := cells[key]; !said { // a command's own words come later
				cells[key] = value(cell)
			}
		}
		id := cells["JobId"]
		if _, one := text.Digits(cells["ArrayTaskId"], 10); cells["ArrayJobId"] != "" && one {
			id = cells["ArrayJobId"] + "_" + cells["ArrayTaskId"]
		}
		if cells["ArrayTaskId"] == noTask {
			id = cells["ArrayJobId"]
		}
		if id == "" || cells["JobState"] == "" {
			continue
		}
		code, signal, _ := strings.Cut(cells["ExitCode"], ":")
		a := Account{ID: id, Name: cells["JobName"], State: cells["JobState"], Comment: cells["Comment"], Node: cells["NodeList"], Start: moment(cells["StartTime"]), End: moment(cells["EndTime"])}
		a.ExitCode, _ = text.Digits(code, 6)
		a.Signal, _ = text.Digits(signal, 6)
		if outcome, _ := a.Outcome(); outcome == "" {
			a.End = time.Time{} // of a running job it is when its time is up
		}
		accounts = append(accounts, a)
	}
	return accounts
}
