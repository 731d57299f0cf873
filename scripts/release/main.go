// Command release builds everything that is published of a version, into one
// directory: wheels, tarballs, deb and rpm packages, and their checksums. Two
// builds of one commit give the same bytes.
//
//	go run ./scripts/release -out dist
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nfpm writes deb and rpm packages. It runs at this version, and is no
// dependency of berth.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

// fallbackEpoch dates the files where there is no commit.
const fallbackEpoch = 1_767_225_600 // 2026-01-01

// release is one build of everything.
type release struct {
	out, work string
	version   string
	epoch     time.Time
	arches    []string
	kinds     []string
	host      string   // a berth that runs here, for man pages and completion
	skipped   []string // what could not be made here, and why
}

func main() {
	out := flag.String("out", "dist", "the directory for what is built; files of an earlier build are replaced")
	arches := flag.String("arch", "amd64,arm64", "architectures")
	kinds := flag.String("kind", "wheel,tarball,deb,rpm", "what to build")
	flag.Parse()
	if err := build(*out, strings.Split(*arches, ","), strings.Split(*kinds, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// failure is what check panics with.
type failure struct{ error }

// check ends the build with an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is check for a call with a result.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func build(out string, arches, kinds []string) (err error) {
	kind := "" // that is being made
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case failure:
			if err = cause.error; kind != "" {
				err = fmt.Errorf("%s: %w", kind, err)
			}
		default:
			panic(cause)
		}
	}()
	version, err := os.ReadFile("VERSION")
	if err != nil {
		return fmt.Errorf("run it in the root of the repository: %w", err)
	}
	r := &release{version: strings.TrimSpace(string(version)), arches: arches, kinds: kinds, epoch: epoch()}
	r.out = must(filepath.Abs(out))
	r.work = must(os.MkdirTemp("", "berth-release-"))
	defer os.RemoveAll(r.work)
	check(os.MkdirAll(r.out, 0o755))
	r.host = filepath.Join(r.work, "berth-main")
	r.compile(runtime.GOARCH, "", r.host, "./cmd/berth")
	var made []string
	for _, kind = range kinds {
		made = append(made, r.kind(kind)...)
	}
	kind = ""
	r.checksums(made)
	for _, why := range r.skipped {
		fmt.Println("skipped:", why)
	}
	return nil
}

// epoch is the date of every file: SOURCE_DATE_EPOCH, or the last commit's.
func epoch() time.Time {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, _ := exec.Command("git", "log", "-1", "--format=%ct").Output()
		text = cmp.Or(strings.TrimSpace(string(out)), strconv.Itoa(fallbackEpoch))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		check(fmt.Errorf("SOURCE_DATE_EPOCH: expected seconds since 1970, found %q", text))
	}
	return time.Unix(seconds, 0).UTC()
}

func (r *release) kind(kind string) (made []string) {
	if kind == "wheel" {
		made = append(made, r.wheel("berth-client", []string{"any"}, nil))
	}
	for _, arch := range r.arches {
		switch kind {
		case "wheel":
			made = append(made, r.wheels(arch)...)
		case "tarball":
			made = append(made, r.tarball(arch))
		case "deb", "rpm":
			made = append(made, r.system(kind, arch))
		default:
			check(errors.New("expected wheel, tarball, deb or rpm"))
		}
	}
	return made
}

// run runs a program, and shows what it says only if it fails.
func (r *release) run(env []string, argv ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), append(env, "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.epoch.Unix(), 10))...)
	if said, err := cmd.CombinedOutput(); err != nil {
		check(fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, said))
	}
}

// compile builds one static program for an architecture, once.
func (r *release) compile(arch, kind, to, pkg string) {
	if _, err := os.Stat(to); err == nil {
		return
	}
	flags := fmt.Sprintf("-s -w -buildid= -X berth/internal/cli/front.Version=%s -X berth/internal/cli/session.Kind=%s", r.version, kind)
	r.run([]string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOFLAGS="},
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", to, pkg)
}

// programs builds the programs for an architecture, and returns their files.
// berth-gpu needs cgo, so it is built where there is a C compiler for it.
func (r *release) programs(arch, kind string) map[string]string {
	dir := filepath.Join(r.work, arch)
	files := map[string]string{"berth-main": filepath.Join(dir, kind, "berth-main"), "berth": filepath.Join(dir, "berth"), "berth-keep": filepath.Join(dir, "berth-keep")}
	for name, pkg := range map[string]string{"berth-main": "./cmd/berth", "berth": "./cmd/berth-front", "berth-keep": "./cmd/berth-keep"} {
		r.compile(arch, kind, files[name], pkg)
	}
	const lazy = "-extldflags=-Wl,-z,lazy,--build-id=none" // as the Makefile builds it
	cc := "cc"
	if arch != runtime.GOARCH {
		cc = machines[arch] + "-linux-gnu-gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		why := fmt.Sprintf("berth-gpu for %s: there is no C compiler for it here, so berth reads GPUs through nvidia-smi", arch)
		if !slices.Contains(r.skipped, why) {
			r.skipped = append(r.skipped, why)
		}
		return files
	}
	files["berth-gpu"] = filepath.Join(dir, "berth-gpu")
	r.run([]string{"CGO_ENABLED=1", "CC=" + cc, "GOARCH=" + arch, "GOFLAGS=", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations"},
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version+" "+lazy, "-o", files["berth-gpu"], "./cmd/berth-gpu")
	return files
}

// checksums writes SHA256SUMS, which sha256sum -c reads.
func (r *release) checksums(made []string) {
	slices.Sort(made)
	var sums bytes.Buffer
	for _, file := range made {
		content := must(os.ReadFile(filepath.Join(r.out, file)))
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), file)
		fmt.Printf("%6.1f MiB  %s\n", float64(len(content))/(1<<20), filepath.Join(r.out, file))
	}
	check(os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644))
}
