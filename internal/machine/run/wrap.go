package run

import (
	"os"
	"strings"

	"berth/internal/job"
)

// Wrap composes the command of a job: its words or its shell line as they are,
// or, with a setup, a shell that runs it first and then executes the command.
// setup says which; the wrapper then writes "ok" to descriptor 3 between the
// two. gpuEnv is set again after the setup, so that the setup cannot select
// GPUs that were not allocated to the job.
//
// The command is part of the script and not of its arguments, because files
// that a setup sources would take those for their own.
func Wrap(spec job.Spec, gpuEnv []string) (argv []string, setup bool) {
	command := spec.Argv
	if spec.Shell != "" || len(command) == 0 {
		command = []string{"/bin/sh", "-c", spec.Shell}
	}
	if spec.Venv == "" && spec.Conda == "" && spec.Setup == "" {
		return command, false
	}
	var script strings.Builder
	script.WriteString(setupPrologue)
	if spec.Venv != "" {
		addStep(&script, "venv "+spec.Venv, venvStep(spec.Venv))
	}
	if spec.Conda != "" {
		addStep(&script, "conda "+spec.Conda, condaStep(spec.Conda))
	}
	if strings.Contains(spec.Setup, "conda activate") && spec.Conda == "" {
		script.WriteString(condaKnown)
	}
	if spec.Setup != "" {
		addStep(&script, spec.Setup, "eval "+job.Quote(spec.Setup))
	}
	script.WriteString("trap - EXIT\nunset berth_step\nunset -f berth_failed berth_conda\n")
	for _, entry := range gpuEnv {
		if key, value, found := strings.Cut(entry, "="); found && isVariable(key) {
			script.WriteString("export " + key + "=" + job.Quote(value) + "\n")
		}
	}
	script.WriteString("printf ok >&3\nexec 3>&-\nexec " + job.QuoteArgv(command) + "\n")
	return []string{setupShell(), "-c", script.String(), "berth"}, true
}

// setupPrologue turns every way out of a setup except success into a reported
// failure: a step that fails, and one that calls exit.
const setupPrologue = `berth_failed() {
	berth_status=$1
	trap - EXIT
	printf 'berth: set-up failed: %s (status %s)\n' "$berth_step" "$berth_status" >&2
	[ "$berth_status" -eq 0 ] && berth_status=1
	exit "$berth_status"
}
trap 'berth_failed $?' EXIT
berth_conda() { :; }
`

// addStep runs one step in the wrapper's own shell, without descriptor 3.
func addStep(script *strings.Builder, name, code string) {
	script.WriteString("berth_step=" + job.Quote(name) + "\n")
	script.WriteString("{\n" + code + "\n} 3>&- || berth_failed $?\n")
}

func venvStep(venv string) string {
	path := shellPath(strings.TrimSuffix(venv, "/")) + "/bin/activate"
	return `if [ ! -r ` + path + ` ]; then
	printf 'berth: no virtual environment: cannot read %s\n' ` + path + ` >&2
	false
else
	. ` + path + `
fi`
}

// condaStep finds an installation, through the user's shell or in the usual
// places, and activates the environment.
func condaStep(name string) string {
	return condaFound + `
berth_conda && . "$berth_base/etc/profile.d/conda.sh" && conda activate ` + shellPath(name)
}

// condaKnown makes conda a command of the shell if it is not one yet, so that
// a setup can use `conda activate NAME` as people type it. Without conda, the
// setup finds it some other way, or fails and says so.
var condaKnown = condaFound + `
if ! { command -v conda | grep -qx conda; } 2>/dev/null && berth_conda 2>/dev/null; then
	. "$berth_base/etc/profile.d/conda.sh"
fi
`

// CondaBases are the usual places of an installation.
func CondaBases(home string) []string {
	return []string{home + "/miniconda3", home + "/anaconda3", home + "/miniforge3", home + "/mambaforge", "/opt/conda", "/opt/miniconda3"}
}

// condaFound defines the search for an installation.
var condaFound = `berth_conda() {
	for berth_base in "${CONDA_EXE:+${CONDA_EXE%/*/*}}" "$(conda info --base 2>/dev/null)" \
		"` + strings.Join(CondaBases("$HOME"), `" "`) + `"; do
		if [ -n "$berth_base" ] && [ -r "$berth_base/etc/profile.d/conda.sh" ]; then
			return 0
		fi
	done
	printf 'berth: conda not found; set CONDA_EXE to its path\n' >&2
	return 1
}`

// shellPath quotes a path for the script; a leading ~/ is the job's home.
func shellPath(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		return `"$HOME"/` + job.Quote(rest)
	}
	return job.Quote(path)
}

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// setupShell is bash if there is one: people write setups for it.
func setupShell() string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return "/bin/sh"
}
