package gpuscheduler

import (
	"os"
	"os/exec"
	"path/filepath"

	"berth/internal/job"
)

// baseEnvironment sets the environment of a job that names none: conda's base if
// conda is installed, else python on PATH, or python3 where that is its only
// name. The note reports the last case.
func baseEnvironment(spec job.Spec) (_ job.Spec, note string) {
	if spec.Conda != "" {
		return spec, ""
	}
	if condaHere() {
		spec.Conda = "base"
		return spec, ""
	}
	if _, err := exec.LookPath("python"); err == nil || len(spec.Argv) == 0 || spec.Argv[0] != "python" {
		return spec, ""
	}
	if _, err := exec.LookPath("python3"); err != nil {
		return spec, "" // the job will fail with a clear message
	}
	spec.Argv = append([]string{"python3"}, spec.Argv[1:]...)
	return spec, "neither python on PATH nor conda was found; jobs without an environment run with python3"
}

// condaHere looks for conda in the same places as a job's set-up.
func condaHere() bool {
	home := os.Getenv("HOME")
	for _, base := range []string{
		condaBase(os.Getenv("CONDA_EXE")), condaBase(onPath("conda")),
		home + "/miniconda3", home + "/anaconda3", home + "/miniforge3", home + "/mambaforge", "/opt/conda", "/opt/miniconda3",
	} {
		if _, err := os.Stat(filepath.Join(base, "etc/profile.d/conda.sh")); base != "" && err == nil {
			return true
		}
	}
	return false
}

// condaBase is the installation directory of bin/conda or condabin/conda.
func condaBase(program string) string {
	if program == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	return filepath.Dir(filepath.Dir(program))
}

func onPath(name string) string {
	path, _ := exec.LookPath(name)
	return path
}
