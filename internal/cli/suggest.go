package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// elsewhere has the words that other schedulers and tools use, by the berth
// command that does the same. The key of the outer map is the command they
// were typed after.
var elsewhere = map[string]map[string]string{
	"berth": {
		"submit":         "sbatch qsub bsub add enqueue push new create mgpu_srun",
		"submit -i":      "srun salloc qrsh exec interactive shell bash",
		"list":           "squeue qstat bjobs stat ps jobs pending running mgpu_queue",
		"top":            "htop watch monitor dashboard tui",
		"show":           "scontrol info describe inspect get details job",
		"why":            "explain reason reasons eta",
		"logs":           "log cat output stdout stderr print view less",
		"logs -f":        "tail tailf follow stream",
		"wait":           "join block await",
		"attach":         "connect login sattach screen tmux enter",
		"history":        "sacct past finished done completed bhist",
		"stats":          "usage report sreport summary accounting sshare",
		"cancel":         "kill scancel qdel bkill delete del remove rm abort terminate end mgpu_cancel",
		"hold":           "pause qhold",
		"park":           "suspend freeze checkpoint",
		"unpark":         "thaw",
		"release":        "resume unhold unpause continue qrls",
		"requeue":        "retry rerun again resubmit redo",
		"edit":           "modify update change alter set qalter",
		"adopt":          "import claim track",
		"gpus":           "sinfo nvidia-smi smi gpustat rocm-smi cards devices nodes",
		"gpus --watch":   "nvtop nvitop",
		"gpu pause":      "cordon disable",
		"gpu drain":      "drain evacuate empty",
		"gpu resume":     "undrain uncordon enable",
		"serve":          "daemon server mgpu_server",
		"start":          "up launch",
		"stop":           "down shutdown quit",
		"status":         "ping alive uptime",
		"doctor":         "check verify diagnose health",
		"simulate":       "replay sim compare benchmark",
		"debug snapshot": "snapshot dump",
		"backup":         "save export",
		"token create":   "auth",
	},
	"berth gpu": {
		"gpus":           "list ls status show info",
		"gpu pause":      "cordon disable stop hold",
		"gpu resume":     "undrain uncordon enable start unpause",
		"gpu quarantine": "isolate ban",
		"gpu clear":      "heal unquarantine",
		"gpu history":    "events log logs",
		"gpu release":    "reset mig",
	},
	"berth group": {
		"group list":   "ls show status",
		"group set":    "limit create add edit",
		"group pause":  "hold stop",
		"group resume": "release unpause start",
		"group remove": "delete rm",
	},
	"berth token": {
		"token create": "add make",
		"token list":   "ls show",
		"token revoke": "delete remove rm cancel",
	},
	"berth debug": {
		"debug snapshot": "dump state save",
		"why":            "explain why",
	},
}

// meant is the berth command for another tool's word, or "".
func meant(after, word string) string {
	for command, words := range elsewhere[after] {
		for same := range strings.FieldsSeq(words) {
			if same == strings.ToLower(word) {
				return "berth " + command
			}
		}
	}
	return ""
}

// withVerbs adds subcommands to a command that only groups them.
func withVerbs(cmd *cobra.Command, verbs ...*cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	session.DaemonFlags(cmd)
	cmd.AddCommand(verbs...)
}

func unknownCommand(cmd *cobra.Command, word string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	hint := "commands: " + strings.Join(known, ", ")
	if !cmd.HasParent() {
		hint = "see berth --help"
	}
	if same := meant(cmd.CommandPath(), word); same != "" {
		hint = fmt.Sprintf("did you mean %s?", same)
	} else if near := text.Nearest(word, known); near != "" {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), near)
	}
	return problem.Newf(problem.Invalid, hint, "unknown command %q", word)
}
