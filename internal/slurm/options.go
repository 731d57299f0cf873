package slurm

import (
	"cmp"
	"strings"
)

// takes says whether an option has a value.
type takes uint8

const (
	needed takes = iota
	maybe        // only after =
	no
)

// option is one option of sbatch.
type option struct {
	short   byte
	takes   takes
	instead string // why berth refuses it: what to use instead; empty: it is passed on
	one     bool   // the value 1 is accepted nevertheless
}

const (
	useSelf  = "leave it out: berth submits the job and follows it"
	oneTask  = "a berth job is one task on one node; it can start more processes itself (torchrun, mpirun)"
	useCount = "use --gpus, with --gpu-type for the model"
)

// known are the options of sbatch from 20.11 to 24.11.
var known = map[string]option{
	"account":             {short: 'A'},
	"acctg-freq":          {},
	"array":               {short: 'a', instead: "use --array of berth submit"},
	"batch":               {},
	"bb":                  {},
	"bbf":                 {},
	"begin":               {short: 'b', instead: "use --begin of berth submit"},
	"chdir":               {short: 'D', instead: "use --chdir of berth submit"},
	"cluster-constraint":  {},
	"clusters":            {short: 'M', instead: "berth hands jobs over to one cluster; choose it with SLURM_CONF of the daemon"},
	"comment":             {instead: "leave it out: berth recognises its jobs by it; use --name for a text of your own"},
	"constraint":          {short: 'C'},
	"container":           {instead: "run the container in the job's command"},
	"container-id":        {instead: "run the container in the job's command"},
	"contiguous":          {takes: no},
	"core-spec":           {short: 'S'},
	"cores-per-socket":    {},
	"cpu-freq":            {},
	"cpus-per-gpu":        {instead: "use --cpus"},
	"cpus-per-task":       {short: 'c', instead: "use --cpus"},
	"deadline":            {},
	"delay-boot":          {},
	"dependency":          {short: 'd', instead: "use --after: an id of Slurm may change"},
	"distribution":        {short: 'm'},
	"error":               {short: 'e', instead: "use --output"},
	"exclude":             {short: 'x'},
	"exclusive":           {takes: maybe},
	"export":              {takes: maybe, instead: "use --export of berth submit"},
	"export-file":         {instead: "use --env"},
	"extra":               {},
	"extra-node-info":     {short: 'B'},
	"get-user-env":        {takes: maybe, instead: "use --setup, such as --setup \"source ~/.profile\""},
	"gid":                 {instead: useSelf},
	"gpu-bind":            {},
	"gpu-freq":            {},
	"gpus":                {short: 'G', instead: useCount},
	"gpus-per-node":       {instead: useCount},
	"gpus-per-socket":     {instead: useCount},
	"gpus-per-task":       {instead: useCount},
	"gres":                {},
	"gres-flags":          {},
	"help":                {short: 'h', takes: no, instead: useSelf},
	"hint":                {},
	"hold":                {short: 'H', takes: no, instead: "use --hold of berth submit"},
	"ignore-pbs":          {takes: no, instead: useSelf},
	"input":               {short: 'i', instead: "redirect it in the command: program <file"},
	"job-name":            {short: 'J', instead: "use --name"},
	"kill-on-invalid-dep": {instead: "use --after"},
	"licenses":            {short: 'L'},
	"mail-type":           {instead: "use --notify, which also tells about retries"},
	"mail-user":           {instead: "use --notify"},
	"mcs-label":           {},
	"mem":                 {instead: "use --mem of berth submit"},
	"mem-bind":            {},
	"mem-per-cpu":         {instead: "use --mem"},
	"mem-per-gpu":         {instead: "use --mem"},
	"mincpus":             {},
	"network":             {},
	"nice":                {takes: maybe, instead: "use --priority with a number below 0"},
	"no-kill":             {short: 'k', takes: maybe, instead: useSelf},
	"no-requeue":          {takes: no},
	"nodefile":            {short: 'F'},
	"nodelist":            {short: 'w'},
	"nodes":               {short: 'N', instead: oneTask, one: true},
	"ntasks":              {short: 'n', instead: oneTask, one: true},
	"ntasks-per-core":     {instead: oneTask, one: true},
	"ntasks-per-gpu":      {instead: oneTask, one: true},
	"ntasks-per-node":     {instead: oneTask, one: true},
	"ntasks-per-socket":   {instead: oneTask, one: true},
	"oom-kill-step":       {takes: maybe},
	"open-mode":           {instead: "leave it out: berth keeps one log per attempt"},
	"output":              {short: 'o', instead: "use --output of berth submit"},
	"overcommit":          {short: 'O', takes: no},
	"oversubscribe":       {short: 's', takes: no},
	"parsable":            {takes: no, instead: useSelf},
	"partition":           {short: 'p'},
	"power":               {},
	"prefer":              {},
	"priority":            {instead: "use --priority of berth submit"},
	"profile":             {},
	"propagate":           {takes: maybe},
	"qos":                 {short: 'q'},
	"quiet":               {short: 'Q', takes: no, instead: useSelf},
	"reboot":              {takes: no},
	"requeue":             {takes: no, instead: "use --requeue of berth submit: berth runs the job again"},
	"reservation":         {},
	"resv-ports":          {takes: maybe},
	"segment":             {},
	"signal":              {instead: "use --signal of berth submit"},
	"sockets-per-node":    {},
	"spread-job":          {takes: no, instead: oneTask},
	"stepmgr":             {takes: no, instead: oneTask},
	"switches":            {},
	"test-only":           {takes: no, instead: "use --dry-run"},
	"thread-spec":         {},
	"threads-per-core":    {},
	"time":                {short: 't', instead: "use --time of berth submit"},
	"time-min":            {},
	"tmp":                 {},
	"tres-bind":           {},
	"tres-per-task":       {instead: useCount},
	"uid":                 {instead: useSelf},
	"usage":               {takes: no, instead: useSelf},
	"use-min-nodes":       {takes: no},
	"verbose":             {short: 'v', takes: no, instead: useSelf},
	"version":             {short: 'V', takes: no, instead: useSelf},
	"wait":                {short: 'W', takes: no, instead: "use berth wait"},
	"wait-all-nodes":      {},
	"wckey":               {},
	"wrap":                {instead: "give the command after --"},
}

// OptionOf is the option of sbatch that a word begins with, by its long name if there
// is one, and whether its value, if it needs any, is the next word. It is empty for
// any other word.
func OptionOf(word string) (name string, valueNext bool) {
	short := strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && len(word) > 1
	name, _, attached := strings.Cut(strings.TrimPrefix(word, "--"), "=")
	switch {
	case short:
		name, attached = cmp.Or(long(word[1]), word[1:2]), len(word) > 2
	case !strings.HasPrefix(word, "--"):
		return "", false
	}
	return name, name != "" && !attached && known[name].takes == needed
}

// long is the name of a short option; empty: unknown.
func long(letter byte) string {
	for name, o := range known {
		if o.short == letter {
			return name
		}
	}
	return ""
}
