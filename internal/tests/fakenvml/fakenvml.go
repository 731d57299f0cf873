// Package fakenvml is a driver library for tests: a libnvidia-ml.so.1 of our
// own that can show any set of cards and break in every way a real one does.
// Programs under test get it through their environment (Box.Env), and a test
// can change what it shows while they run.
//
// No program may import it, and it uses nothing of the machine's own driver:
// only the layouts of go-nvml's header.
package fakenvml

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed library
var library embed.FS

// LibraryName is the file that programs load.
const LibraryName = "libnvidia-ml.so.1"

// headerDir is where go-nvml keeps nvml.h.
var headerDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("find go-nvml's header: %w", err)
	}
	return filepath.Join(dir, "pkg", "nvml"), nil
})

// Build returns a directory with the library, for LD_LIBRARY_PATH, without the
// named symbols, as in an older driver. It is compiled once per machine and
// content; if that is impossible, the test is skipped.
func Build(t testing.TB, missing ...string) (dir string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) to build the fake driver library with")
	}
	header, err := headerDir()
	if err != nil {
		t.Skip(err)
	}
	dir, err = build(compiler, header, missing)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func build(compiler, header string, missing []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, header, missing)
	sources, err := fs.Glob(library, "library/*")
	if err != nil {
		return "", err
	}
	for _, name := range sources {
		text, err := library.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	final := filepath.Join(os.TempDir(), fmt.Sprintf("berth-fakenvml-%d-%s", os.Getuid(), hex.EncodeToString(sum.Sum(nil))[:16]))
	if _, err := os.Stat(filepath.Join(final, LibraryName)); err == nil {
		return final, nil
	}
	// Other tests may build the same library now: the first rename wins.
	scratch, err := os.MkdirTemp("", "berth-fakenvml-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := compile(compiler, header, scratch, missing); err != nil {
		return "", err
	}
	if err := os.Chmod(scratch, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(scratch, final); err != nil {
		if _, made := os.Stat(filepath.Join(final, LibraryName)); made != nil {
			return "", fmt.Errorf("install the fake driver library: %w", err)
		}
	}
	return final, nil
}

func compile(compiler, header, into string, missing []string) error {
	if err := os.CopyFS(into, library); err != nil {
		return fmt.Errorf("write the fake driver library: %w", err)
	}
	sources, err := filepath.Glob(filepath.Join(into, "library", "*.c"))
	if err != nil {
		return err
	}
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I" + header, "-o", filepath.Join(into, LibraryName)}
	for _, symbol := range missing {
		args = append(args, "-D"+symbol+"=absent_"+symbol) // renamed, so that lookups fail
	}
	out, err := exec.Command(compiler, append(args, sources...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the fake driver library: %w\n%s", err, out)
	}
	return nil
}
