package predict

import "strings"

// kind is what a flag's name says about its value.
type kind int

const (
	plain    kind = iota
	numbered      // an arbitrary number or list of numbers, such as a seed or a device
	naming        // a name of the run or of its output
	telling       // a name of the work itself, whose digits matter: resnet50
)

var flagKinds = map[string]kind{
	"seed": numbered, "seeds": numbered, "random-seed": numbered, "random-state": numbered, "rng-seed": numbered,
	"gpu": numbered, "gpus": numbered, "gpu-id": numbered, "gpu-ids": numbered, "cuda-visible-devices": numbered,
	"device": numbered, "devices": numbered, "rank": numbered, "local-rank": numbered, "node-rank": numbered,
	"port": numbered, "master-port": numbered, "main-process-port": numbered, "rdzv-endpoint": numbered,
	"job-id": numbered, "run-id": numbered, "trial": numbered, "fold": numbered,

	"name": naming, "run-name": naming, "exp-name": naming, "experiment-name": naming, "job-name": naming,
	"wandb-name": naming, "wandb-run-id": naming, "tag": naming, "tags": naming, "notes": naming,
	"out": naming, "out-dir": naming, "outdir": naming, "output": naming, "output-dir": naming, "output-path": naming,
	"save-dir": naming, "save-path": naming, "log-dir": naming, "logdir": naming, "log-file": naming,
	"work-dir": naming, "workdir": naming, "run-dir": naming, "results-dir": naming, "checkpoint-dir": naming,
	"ckpt-dir": naming, "hydra.run.dir": naming,

	"model": telling, "model-name": telling, "model-name-or-path": telling, "arch": telling, "architecture": telling,
	"backbone": telling, "net": telling, "network": telling, "encoder": telling, "dataset": telling,
	"dataset-name": telling, "task": telling, "benchmark": telling, "env": telling, "env-id": telling,
}

// longestFlag avoids lower-casing a token of a megabyte for nothing.
const longestFlag = 32

// kindOf looks a flag up by its name without dashes; --run_name, --run-name and
// RUN_NAME are the same.
func kindOf(name string) kind {
	if len(name) > longestFlag {
		return plain
	}
	return flagKinds[strings.ReplaceAll(strings.ToLower(name), "_", "-")]
}

// isScript reports whether a token is a script rather than a value.
func isScript(token string) bool {
	for _, end := range []string{".py", ".sh", ".jl", ".R", ".ipynb", ".lua", ".pl", ".m"} {
		if strings.HasSuffix(token, end) {
			return true
		}
	}
	return false
}

// isName reports whether the value of a telling flag is a name to keep: a word,
// perhaps with an owner (meta-llama/Llama-3-8B), but not a path or a hash.
func isName(value string) bool {
	if value == "" || strings.IndexByte("/.~", value[0]) >= 0 || strings.Count(value, "/") > 1 {
		return false
	}
	for i := range len(value) {
		if isLetter(value[i]) {
			return !isNumber(value) && !isUUID(value)
		}
	}
	return false
}
