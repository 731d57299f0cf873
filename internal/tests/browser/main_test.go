package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"berth/internal/tests/testkit"
)

// programs is the directory of the berth under test. Every user can read it.
var programs string

func TestMain(m *testing.M) {
	status := testkit.RunWith(m, func(dir string) {
		programs = dir
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}, "cmd/berth", "cmd/berth-keep")
	closeBrowser()
	os.Exit(status)
}

// closeBrowser ends the browser and removes its files.
var closeBrowser = func() {}

// chromium is the one browser of all tests; each has tabs of its own, which share
// no cookies.
var chromium = sync.OnceValues(func() (context.Context, error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program()),
		chromedp.NoSandbox, // root has none, and only pages of ours are opened
		chromedp.Flag("disable-gpu", true),
		chromedp.WSURLReadTimeout(testkit.Patience),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	closeBrowser = func() {
		if err := chromedp.Cancel(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "close the browser:", err)
		}
		end()
	}
	return ctx, chromedp.Do(ctx)
})

// program is the path of the browser; empty if none was found.
func program() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func needsBrowser(t *testing.T) context.Context {
	t.Helper()
	if program() == "" {
		t.Skip("there is no chromium")
	}
	ctx, err := chromium()
	if err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return ctx
}
