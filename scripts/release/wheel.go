package main

import (
	"archive/zip"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// submitit is how submitit finds berth, as python/pyproject.toml says it.
const submitit = "[submitit]\nexecutor = berth.submitit_plugin:BerthExecutor\njob_environment = berth.submitit_plugin:BerthJobEnvironment\n"

// file is one file of an archive.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// machines are the architectures' names in wheels.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// staticTags are the platforms of programs that link with nothing.
func staticTags(machine string) []string {
	return []string{"manylinux_2_17_" + machine, "manylinux2014_" + machine, "musllinux_1_1_" + machine}
}

// wheels writes the wheels for an architecture: one with static programs, for
// any Linux, and one that has berth-gpu too, for a C library that is new enough
// for it. pip prefers the second.
func (r *release) wheels(arch string) (made []string) {
	programs := r.programs(arch, "wheel")
	helper, has := programs["berth-gpu"]
	delete(programs, "berth-gpu")
	made = append(made, r.wheel("berth", staticTags(machines[arch]), programs))
	if has {
		programs["berth-gpu"] = helper
		made = append(made, r.wheel("berth", []string{fmt.Sprintf("manylinux_2_%d_%s", glibc(helper), machines[arch])}, programs))
	}
	return made
}

// glibc is the newest version 2.x of the C library that a program asks for.
func glibc(program string) (minor int) {
	f := must(elf.Open(program))
	defer f.Close()
	for _, s := range must(f.ImportedSymbols()) {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_2.")
		if !ok {
			continue
		}
		version, _, _ = strings.Cut(version, ".")
		if n, err := strconv.Atoi(version); err == nil {
			minor = max(minor, n)
		}
	}
	return max(minor, 17)
}

// wheel writes a wheel with the Python client and programs, which pip puts into
// the bin of the environment.
func (r *release) wheel(project string, platforms []string, programs map[string]string) string {
	stem := strings.ReplaceAll(project, "-", "_") + "-" + r.version
	var tags []string
	for _, platform := range platforms {
		tags = append(tags, "py3-none-"+platform)
	}
	files := must(pythonFiles("python/berth", "berth"))
	for _, name := range sortedKeys(programs) {
		files = append(files, file{stem + ".data/scripts/" + name, 0o755, must(os.ReadFile(programs[name]))})
	}
	about := must(os.ReadFile("README.md"))
	licence := must(os.ReadFile("LICENSE"))
	summary := "GPU job scheduler for the machine you have"
	if programs == nil {
		summary = "Client for berth, a " + summary
	}
	info := stem + ".dist-info/"
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nLicense: MIT\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n%s", project, r.version, summary, about)
	pure := programs == nil
	wheel := fmt.Sprintf("Wheel-Version: 1.0\nGenerator: berth\nRoot-Is-Purelib: %t\nTag: %s\n", pure, strings.Join(tags, "\nTag: "))
	files = append(files, file{info + "METADATA", 0o644, []byte(metadata)}, file{info + "WHEEL", 0o644, []byte(wheel)}, file{info + "LICENSE", 0o644, licence},
		file{info + "entry_points.txt", 0o644, []byte(submitit)})

	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, file{info + "RECORD", 0o644, []byte(record.String())})

	name := stem + "-py3-none-" + strings.Join(platforms, ".") + ".whl"
	r.zip(name, files)
	return name
}

// pythonFiles are the sources of a package.
func pythonFiles(dir, pkg string) (files []file, err error) {
	return files, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".py", ".typed", ".pyi"}, filepath.Ext(at)) {
			return err
		}
		inside, _ := filepath.Rel(dir, at) // at is below it
		content, err := os.ReadFile(at)
		files = append(files, file{path.Join(pkg, filepath.ToSlash(inside)), 0o644, content})
		return err
	})
}

func (r *release) zip(name string, files []file) {
	out := must(os.Create(filepath.Join(r.out, name)))
	defer out.Close()
	z := zip.NewWriter(out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.epoch}
		h.SetMode(f.mode)
		must(must(z.CreateHeader(h)).Write(f.content))
	}
	check(errors.Join(z.Close(), out.Close()))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func sortFiles(files []file) {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
}
