package browser

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/creack/pty"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// Where README.md has its pictures.
const (
	topPicture  = "../../../docs/top.svg"
	pagePicture = "../../../docs/page.png"
)

// maxPicture bounds a picture's file: everybody who clones berth gets it.
const maxPicture = 120_000

// TestPictures makes the pictures of README.md from a daemon with four simulated
// GPUs and a lab's jobs. -update keeps them (make screens); else they must still
// show what the programs do.
func TestPictures(t *testing.T) {
	h := newSharedHost(t, "--sim", "4")
	ann := scene(h)
	frame := h.top(ann, 124, 27)
	for _, name := range []string{"pretrain", "distill"} {
		if !regexp.MustCompile(name + ` .* queued .*\d[hm]\d\d `).MatchString(frame) {
			t.Errorf("berth top --once shows no expected start for %s:\n%s", name, frame)
		}
	}
	drawing := drawTerminal(frame, "berth top", "berth top in a terminal: four GPUs with a bar each that is split by job, the queue with states, expected starts and reasons, and below it the first job's story, its memory over time and the end of its log.")
	b := newTab(t, h.origin())
	b.size(1200, 1090)
	b.theme("light")
	b.open(h.login(ann))
	b.until("the page is complete", `document.querySelectorAll(".card").length === 4 && document.querySelector(".mine .log .line") && document.querySelectorAll("tbody a").length >= 8 && /\d\d:\d\d/.test(document.querySelector("tbody").innerText)`)
	shot := fewColours(t, call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data)
	if *testkit.Update {
		testkit.Must(t, os.WriteFile(topPicture, []byte(drawing), 0o644), os.WriteFile(pagePicture, shot, 0o644))
	}
	kept := testkit.Read(t, topPicture)
	if want, got := skeleton(t, drawing), skeleton(t, kept); want != got {
		t.Errorf("docs/top.svg shows another berth top (make screens): %q, want %q", got, want)
	}
	fresh, err := png.DecodeConfig(bytes.NewReader(shot))
	testkit.Must(t, err)
	old, err := png.DecodeConfig(strings.NewReader(testkit.Read(t, pagePicture)))
	testkit.Must(t, err)
	if old.Width != fresh.Width || old.Height != fresh.Height || len(shot) > maxPicture || len(kept) > maxPicture {
		t.Errorf("docs/page.png has %dx%d pixels, a new one %dx%d and %d bytes; docs/top.svg has %d bytes", old.Width, old.Height, fresh.Width, fresh.Height, len(shot), len(kept))
	}
	for _, picture := range []string{"docs/top.svg", "docs/page.png"} {
		if !strings.Contains(testkit.Read(t, "../../../README.md"), "]("+picture+")") {
			t.Errorf("README.md does not show %s", picture)
		}
	}
}

// scene submits what a lab of three has on an ordinary afternoon, and returns the
// one whose screen is shown.
func scene(h *host) *person {
	h.t.Helper()
	testkit.Write(h.t, filepath.Join(h.dir, "bin", "python"), fmt.Sprintf(`#!/bin/sh
# Stands in for a training: takes memory on its simulated GPUs, and prints.
case $1 in
train.py) vram=17600 ;;
finetune.py) vram=13100 ;;
sweep.py) vram=7300 ;;
*) vram=5200 ;;
esac
(
	step=0
	while :; do
		step=$((step + 50))
		printf '\033[2mstep %%5d\033[0m  loss \033[32m%%d.%%03d\033[0m  lr 3e-4\n' $step $((300 / (step + 100))) $((400000 / (step + 800)))
		sleep 0.5
	done
) &
exec %s/berth simjob --vram $vram --ramp 20 --hold 7200 --util $((70 + vram %% 29))
`, programs), 0o755)
	ann, bob, cat := h.colleague("ann", "daemon"), h.colleague("bob", "nobody"), h.colleague("cat", "games")
	first := h.submit(ann, "-n", "vit-large", "--gpus", "2", "--vram", "20G", "-t", "6h", "--", "python train.py --model vit-l --epochs 90")
	h.becomes(first, job.Running)
	h.becomes(h.submit(bob, "-n", "finetune-8b", "--vram", "14G", "-t", "3h", "--", "python finetune.py --lora 16"), job.Running)
	h.becomes(h.submit(cat, "-n", "eval-coco", "--vram", "6G", "-t", "40m", "--", "python eval.py"), job.Running)
	h.submit(cat, "-n", "lr-sweep", "--array", "0-11%2", "--vram", "8G", "-t", "1h", "--", "python sweep.py")
	h.becomes(h.submit(ann, "-n", "smoke-test", "-g", "0", "--", `for step in 1 2 3; do echo "step $step ok"; done; echo 'all 214 checks passed'`), job.Finished)
	h.submit(bob, "-n", "pretrain", "--gpus", "4", "--vram", "22G", "-t", "12h", "--", "python train.py --from-scratch")
	h.submit(ann, "-n", "distill", "--vram", "18G", "-t", "2h", "--", "python train.py --teacher vit-l")
	h.berth(ann, "hold", h.submit(ann, "-n", "export", "--gpus", "1", "-t", "30m", "--", "python export.py"))
	h.submit(bob, "-n", "report", "--after", first, "-g", "0", "--", "python report.py")
	if *testkit.Update { // memory over time takes its time
		testkit.Within(h.t, 2*testkit.Patience, "the first job has run for a while", func() bool {
			return time.Since(*h.job(first).StartedAt) > 50*time.Second
		})
	}
	return ann
}

// colleague is a user with a name that fits into a picture, made for it if need
// be; a test that keeps no picture takes an account that every system has.
func (h *host) colleague(name, account string) *person {
	t := h.t
	t.Helper()
	if !*testkit.Update {
		return somebody(t, account)
	}
	if _, err := user.Lookup(name); err != nil {
		out, err := exec.Command("useradd", "--no-create-home", "--shell", "/bin/sh", name).CombinedOutput()
		if err != nil {
			t.Fatalf("useradd %s: %v: %s", name, err, out)
		}
		t.Cleanup(func() {
			h.cancelAll() // nobody is removed who has a process
			testkit.Eventually(t, "the user "+name+" is removed", func() bool { return exec.Command("userdel", name).Run() == nil })
		})
	}
	return somebody(t, name)
}

// top is a frame of berth top on a terminal of this size.
func (h *host) top(who *person, columns, rows uint16) string {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "berth"), "top", "--once")
	cmd.Env = []string{"HOME=" + h.dir, "BERTH_SOCKET=" + h.socket, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "TZ=UTC"}
	terminal, err := pty.StartWithAttrs(cmd, &pty.Winsize{Cols: columns, Rows: rows}, &syscall.SysProcAttr{Setsid: true, Setctty: true, Credential: who.uid})
	testkit.Must(h.t, err)
	defer terminal.Close()
	frame, _ := io.ReadAll(terminal) // a terminal ends with an error
	testkit.Must(h.t, cmd.Wait())
	return strings.ReplaceAll(string(frame), "\r\n", "\n")
}

// skeleton is what every picture of berth top has: the titles of its columns and
// its keys.
func skeleton(t *testing.T, svg string) string {
	t.Helper()
	var drawn struct {
		Texts []struct {
			Y    string `xml:"y,attr"`
			Text string `xml:",chardata"`
		} `xml:"text"`
	}
	testkit.Must(t, xml.Unmarshal([]byte(svg), &drawn))
	var words []string
	for _, line := range []string{"REASON", "q quit"} {
		for _, found := range drawn.Texts {
			if !strings.Contains(found.Text, line) {
				continue
			}
			for _, one := range drawn.Texts {
				if one.Y == found.Y {
					words = append(words, one.Text)
				}
			}
		}
	}
	return strings.Join(words, "|")
}

// fewColours is a picture with the 256 colours that it has most of, which makes
// its file small.
func fewColours(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	testkit.Must(t, err)
	count := map[color.Color]int{}
	bounds := from.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			count[from.At(x, y)]++
		}
	}
	most := make(color.Palette, 0, len(count))
	for c := range count {
		most = append(most, c)
	}
	slices.SortFunc(most, func(a, b color.Color) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	to := image.NewPaletted(bounds, most[:min(len(most), 256)])
	near := map[color.Color]uint8{}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			c := from.At(x, y)
			if _, known := near[c]; !known {
				near[c] = uint8(to.Palette.Index(c))
			}
			to.SetColorIndex(x, y, near[c])
		}
	}
	var out bytes.Buffer
	testkit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
