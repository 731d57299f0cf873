package gpuscheduler

import (
	"os"
	"os/exec"
	"path/filepath"

	"berth/internal/job"
)

// baseEnvironment gives a job that names no environment the one it means:
// conda's base where there is a conda, else the python on PATH. On systems that
// have it as python3 alone, that one. The note says what is not as written.
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
		return spec, "" // the job fails, and says why
	}
	spec.Argv = append([]string{"python3"}, spec.Argv[1:]...)
	return spec, "there is no python on PATH and no conda: jobs without an environment run under python3"
}

// condaHere looks where a job's set-up looks for an installation.
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

// condaBase is the installation that bin/conda or condabin/conda belongs to.
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
