package gpuscheduler

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/job/jobfile"
)

const addUsage = `usage: gpu-scheduler add SCRIPT [flags]

Append a job to the jobs file, as one line that gpu-scheduler start reads.

  --conda NAME         conda environment (default: the base environment)
  --args "ARG..."      the script's arguments, quoted as in a shell
  --priority N         lower numbers start first (default 0)
  --gpus LIST          GPUs it may run on: 0,1,2 or 0-3 (default: any)
  --output-file FILE   the jobs file (default jobs.txt); - prints the line

Example:
  gpu-scheduler add /path/to/train.py --conda myenv \
      --args "--llm qwen2.5-7b-inst --epochs 100" --priority 0 --gpus 0-3

Exit status: 0, 1 if the file cannot be written, 2 for bad usage.
`

// addition is the job to add.
type addition struct {
	job  jobfile.CSVJob
	gpus string // as written
	file string
}

// runAdd is `gpu-scheduler add`: one line at the end of the jobs file.
func runAdd(c call, args []string) int {
	a, err := parseAddition(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(c.Out, addUsage)
		return 0
	}
	line := ""
	if err == nil {
		line, err = a.line()
	}
	if err != nil {
		c.Complain("add: "+err.Error(), "see gpu-scheduler add --help")
		return frontend.BadUsage
	}
	if _, err := os.Stat(a.job.Script); err != nil {
		fmt.Fprintf(c.Err, "%s: warning: %s does not exist yet\n", c.Name, a.job.Script)
	}
	if a.file == "-" {
		fmt.Fprintln(c.Out, line)
		return 0
	}
	if err := appendOneLine(a.file, line); err != nil {
		c.Complain("add to the jobs file: "+err.Error(), "choose another file with --output-file; - prints the line")
		return frontend.Failed
	}
	fmt.Fprintf(c.Out, "Added to %s: %s\n", a.file, line)
	return 0
}

func parseAddition(args []string) (a addition, err error) {
	flags := pflag.NewFlagSet("add", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&a.job.Conda, "conda", "", "")
	flags.StringVar(&a.job.Arguments, "args", "", "")
	priority := flags.String("priority", "0", "")
	flags.StringVar(&a.gpus, "gpus", "", "")
	flags.StringVar(&a.file, "output-file", "jobs.txt", "")
	flags.String("state-file", "", "") // accepted by every command, unused here
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	switch flags.NArg() {
	case 0:
		return a, errors.New("the path of the script is missing")
	case 1:
		a.job.Script = flags.Arg(0)
	default:
		return a, fmt.Errorf("expected one script, found a second word %q; the script's arguments go into --args \"...\"", flags.Arg(1))
	}
	if a.job.Priority, err = strconv.Atoi(*priority); err != nil {
		return a, fmt.Errorf("--priority: expected a whole number, found %q", *priority)
	}
	return a, a.job.Check()
}

// line is the job as a line of the file, with the GPUs as typed, up to its last
// field that is not empty. It is parsed again to check that it means the same.
func (a addition) line() (string, error) {
	if strings.ContainsAny(a.gpus, "\n\r\x00") {
		return "", fmt.Errorf("--gpus: expected GPU ids and ranges on one line, found %q", a.gpus)
	}
	line := strings.TrimRight(jobfile.FormatCSV(a.job)+strings.TrimSpace(a.gpus), ",")
	read, err := jobfile.ParseCSV("add", []byte(line))
	var mistakes *jobfile.Errors
	if errors.As(err, &mistakes) && len(mistakes.Problems) > 0 {
		return "", errors.New(mistakes.Problems[0].Text)
	}
	if err != nil {
		return "", err
	}
	if len(read) != 1 || read[0].Script != a.job.Script || read[0].Conda != a.job.Conda || read[0].Arguments != a.job.Arguments {
		return "", errors.New("this cannot be written as one line of a jobs file")
	}
	return line, nil
}

// appendOneLine adds the line in one write, so that a concurrent reader sees all
// of it or nothing. A last line without a newline gets one first.
func appendOneLine(name, line string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	// Without the lock, two writers could both complete the same last line.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	text := line + "\n"
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = "\n" + text
		}
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return file.Close()
}
