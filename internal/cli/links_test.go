package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/internal/compat/slurm"
)

func TestMakeKnowsEveryName(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^NAMES := (.*)$`).FindStringSubmatch(string(makefile))
	if line == nil || !slices.Equal(strings.Fields(line[1]), programNames(programs())) {
		t.Errorf("NAMES of the Makefile are %q, want %q", line, programNames(programs()))
	}
	line = regexp.MustCompile(`(?m)^SLURM_NAMES := (.*)$`).FindStringSubmatch(string(makefile))
	if line == nil || !slices.Equal(strings.Fields(line[1]), programNames(slurm.Programs())) {
		t.Errorf("SLURM_NAMES of the Makefile are %q, want %q", line, programNames(slurm.Programs()))
	}
}

// TestSlurmsNamesAreItsOwn where it is installed.
func TestSlurmsNamesAreItsOwn(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, file := range []string{filepath.Join(dir, "berth"), filepath.Join(other, "squeue")} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+other+":/usr/bin:/bin")
	out, ok := links(t, "install-if-missing", dir, "no-such-sbatch", "squeue")
	if ok || !strings.Contains(out, other+"/squeue is installed: no links were made") {
		t.Errorf("with Slurm: ok %v, %s", ok, out)
	}
	if err := os.Remove(filepath.Join(other, "squeue")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // its own links do not count
		if out, ok := links(t, "install-if-missing", dir, "no-such-sbatch", "no-such-squeue"); !ok {
			t.Errorf("without Slurm: %s", out)
		}
	}
	if target, _ := os.Readlink(filepath.Join(dir, "no-such-squeue")); target != "berth" {
		t.Errorf("squeue leads to %q", target)
	}
}

// links runs the script behind make install-links and make uninstall-links.
func links(t *testing.T, verb, dir string, names ...string) (out string, ok bool) {
	t.Helper()
	said, err := exec.Command("sh", append([]string{"../../scripts/links.sh", verb, dir}, names...)...).CombinedOutput()
	return string(said), err == nil
}

func TestLinksAreMadeAndRemovedAndNothingElseIsTouched(t *testing.T) {
	dir := t.TempDir()
	if out, ok := links(t, "install", dir, "tgpu"); ok || !strings.Contains(out, dir+"/berth is missing") {
		t.Errorf("without a berth to link to: %s", out)
	}
	for _, file := range []string{"berth", "gpusched"} { // someone's own gpusched is there
		if err := os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\necho "+file+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "mgpu_srun")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, ok := links(t, "install", dir, "gpusched", "tgpu", "mgpu_srun")
		if ok || !strings.Contains(out, dir+"/gpusched is not a link to berth: left alone") {
			t.Errorf("status ok %v, said %s", ok, out)
		}
	}
	if ran, err := exec.Command(filepath.Join(dir, "tgpu")).Output(); err != nil || string(ran) != "berth\n" {
		t.Errorf("tgpu is %q, %v", ran, err)
	}
	if _, ok := links(t, "uninstall", dir, "gpusched", "tgpu", "mgpu_srun", "mgpu_queue"); ok {
		t.Error("what is not berth's was not told of")
	}
	entries, err := os.ReadDir(dir)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"berth", "gpusched", "mgpu_srun"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v (%v)", left, want, err)
	}
	if target, _ := os.Readlink(filepath.Join(dir, "mgpu_srun")); target != "elsewhere" {
		t.Errorf("someone's own link leads to %q", target)
	}
}
