package tgpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
)

// runSubmit is berth submit, with each job alone on its GPUs.
func runSubmit(c *frontend.Call, args []string) int {
	flags := pflag.NewFlagSet("submit", pflag.ContinueOnError)
	gpus := flags.String("gpus", "", "")
	file := flags.StringP("file", "f", "", "")
	for _, name := range []string{"priority", "name", "cpus", "mem", "preemptible"} {
		flags.String(name, "", "")
	}
	// Requeue is the default because it works on every GPU.
	flags.Lookup("preemptible").NoOptDefVal = "requeue"
	if status, ok := c.Parse(flags, args, usage); !ok {
		return status
	}
	if n, err := strconv.Atoi(*gpus); *gpus != "" && (err != nil || n < 0) {
		c.Complain(fmt.Sprintf("--gpus: expected a whole number of GPUs, found %q", *gpus), "tgpu submit --gpus 2 -- python train.py")
		return frontend.BadUsage
	}
	words := []string{"submit", "--exclusive"}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "file" {
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	what, hint := whatToRun(flags, *file)
	if hint != "" {
		c.Complain("the command is missing", hint)
		return frontend.BadUsage
	}
	return berth(c, c.Out, append(words, what...)...)
}

// whatToRun is the job as arguments of berth submit: a command after --, or a
// file of specs. If it is neither, hint says what to type.
func whatToRun(flags *pflag.FlagSet, file string) (words []string, hint string) {
	before, after := flags.Args(), []string(nil)
	if at := flags.ArgsLenAtDash(); at >= 0 {
		before, after = flags.Args()[:at], flags.Args()[at:]
	}
	if file != "" {
		before = append([]string{file}, before...)
	}
	if len(after) == 0 && len(before) > 0 && strings.HasPrefix(before[0], "cmd=") {
		before, after = nil, before // the -- is missing, but the meaning is clear
	}
	switch {
	case len(before) == 1 && len(after) == 0:
		return []string{"--file", before[0]}, ""
	case len(before) > 0 && len(after) > 0:
		return nil, fmt.Sprintf("give a job spec (%s) or a command after --, not both", before[0])
	case len(before) > 1:
		return nil, fmt.Sprintf("put the command after --: tgpu submit -- %s", strings.Join(before, " "))
	}
	command := commandWords(after)
	if len(command) == 0 {
		return nil, `tgpu submit --gpus 2 -- cmd="python train.py"`
	}
	return append([]string{"--"}, command...), ""
}

// commandWords takes cmd= off the first word. One word is a shell command,
// several are executed as they are. Words after a shell command become its last
// arguments.
func commandWords(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	line, named := strings.CutPrefix(words[0], "cmd=")
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case !named || len(words) == 1 || !strings.ContainsAny(line, " \t\n"):
		return append([]string{line}, words[1:]...)
	}
	for _, word := range words[1:] {
		line += " '" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return []string{line}
}
