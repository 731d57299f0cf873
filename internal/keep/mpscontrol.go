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

// ask gives the control daemon one command and returns its answer. The same
// program does that when it is started without arguments.
func (h *mpsHost) ask(ctx context.Context, command string, within time.Duration) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := h.command(ctx)
	cmd.WaitDelay = openPause
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

// demand gives a command that must be obeyed.
func (h *mpsHost) demand(command string) (answer string, err error) {
	answer, err = h.ask(h.until, command, quitBudget)
	if err != nil {
		return "", fmt.Errorf("%s: %w%s", command, err, ifAny(": ", firstOf(answer)))
	}
	return answer, nil
}

// setLimits sets how much memory a process may have on each card, which the
// daemon counts in its own order: the one it was given them in.
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
		got, ok := parseMemory(answer)
		// It answers in the largest unit that fits, which may round.
		const tolerancePercent = 2
		if off := got - float64(h.LimitMiB); !ok || max(off, -off)*100 > float64(h.LimitMiB)*tolerancePercent {
			return fmt.Errorf("its memory limit is %q, not %d MiB", firstOf(answer), h.LimitMiB)
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
		return fmt.Errorf("its part of the multiprocessors is %q, not %d percent", firstOf(answer), h.Threads)
	}
	return nil
}

// isPercentage reports whether an answer is one and not an excuse.
func isPercentage(answer string) bool {
	_, err := strconv.ParseFloat(answer, 64)
	return err == nil
}

// parseMemory reads an amount as the control daemon prints it, "4G" or
// "4096M", in MiB.
func parseMemory(text string) (mib float64, ok bool) {
	text = strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(text)), "B"), "I")
	if text == "" {
		return 0, false
	}
	units := map[byte]float64{'K': 1.0 / (1 << 10), 'M': 1, 'G': 1 << 10, 'T': 1 << 20}
	factor, named := units[text[len(text)-1]]
	if named {
		text = text[:len(text)-1]
	} else {
		factor = 1.0 / (1 << 20)
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return number * factor, err == nil
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
