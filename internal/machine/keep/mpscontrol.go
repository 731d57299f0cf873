package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ask sends the control daemon one command and returns its answer. The same
// program does that when it is started without arguments.
func (h *mpsHost) ask(ctx context.Context, command string, within time.Duration) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := h.command(ctx)
	cmd.WaitDelay = quitBudget // on a busy machine its output may be read late
	cmd.Stdin = strings.NewReader(command + "\n")
	var out bounded
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", within)
	}
	return strings.TrimSpace(out.String()), err
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	const most = 4096
	b.Buffer.Write(p[:min(len(p), max(0, most-b.Len()))])
	return len(p), nil
}

// demand sends a command that must succeed.
func (h *mpsHost) demand(command string) (answer string, err error) {
	answer, err = h.ask(h.until, command, openBudget)
	if err != nil {
		return "", fmt.Errorf("%s: %w%s", command, err, ifAny(": ", firstOf(answer)))
	}
	return answer, nil
}

// setLimits sets the memory limit of a process on each card. The daemon
// numbers the cards in the order in which it was given them.
func (h *mpsHost) setLimits() error {
	if h.LimitMiB == 0 {
		return nil
	}
	for ordinal := range h.Cards {
		number := strconv.Itoa(ordinal)
		if _, err := h.demand(fmt.Sprintf("set_default_device_pinned_mem_limit %s %dM", number, h.LimitMiB)); err != nil {
			return err
		}
		answer, err := h.demand("get_default_device_pinned_mem_limit " + number)
		if err != nil {
			return err
		}
		if !saysMemory(answer, h.LimitMiB) {
			return fmt.Errorf("expected a memory limit of %d MiB, found %q", h.LimitMiB, firstOf(answer))
		}
	}
	return nil
}

func (h *mpsHost) setThreads() error {
	if h.Threads == 0 {
		return nil
	}
	if _, err := h.demand("set_default_active_thread_percentage " + strconv.Itoa(h.Threads)); err != nil {
		return err
	}
	answer, err := h.demand("get_default_active_thread_percentage")
	if err != nil {
		return err
	}
	if got, err := strconv.ParseFloat(answer, 64); err != nil || got-float64(h.Threads) >= 1 || float64(h.Threads)-got >= 1 {
		return fmt.Errorf("expected %d percent of the multiprocessors, found %q", h.Threads, firstOf(answer))
	}
	return nil
}

// isPercentage reports whether an answer is a percentage and not an error.
func isPercentage(answer string) bool {
	_, err := strconv.ParseFloat(answer, 64)
	return err == nil
}

// saysMemory reports whether an answer of the control daemon means that
// amount. It prints whole numbers of the largest unit, rounded down: 5001 MiB
// becomes "4G".
func saysMemory(answer string, wantMiB int64) bool {
	const mib = 1 << 20
	units := map[byte]int64{'B': 1, 'K': 1 << 10, 'M': mib, 'G': 1 << 30, 'T': 1 << 40}
	answer = strings.ToUpper(strings.TrimSpace(answer))
	if answer == "" {
		return false
	}
	unit, named := units[answer[len(answer)-1]]
	if named {
		answer = answer[:len(answer)-1]
	} else {
		unit = 1
	}
	number, err := strconv.ParseInt(answer, 10, 64)
	return err == nil && number == wantMiB*mib/unit
}

func firstOf(answer string) string {
	line, _, _ := strings.Cut(answer, "\n")
	return line
}

func ifAny(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
