package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// health compares the GPU's state with nvidia-smi, value by value. Both change
// from moment to moment, so they need only be close.
func health(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	c := must(d.card(ctx))
	t.expect(c.Health == "ok", "the GPU is %s: %s", c.Health, c.HealthReason)
	t.requires(c.TemperatureC != nil || c.PowerW != nil || c.RecoveryAction != "", "this berth does not report temperature, power or recovery action")
	values := []struct {
		what, column string
		got          *float64
		slack        func(want float64) float64
	}{
		{"temperature", "temperature.gpu", c.TemperatureC, func(float64) float64 { return 5 }},
		{"power", "power.draw", c.PowerW, func(want float64) float64 { return max(40, want/2) }},
		{"power limit", "power.limit", c.PowerLimitW, func(float64) float64 { return 1 }},
		{"SM clock", "clocks.sm", asFloat(c.SMClockMHz), func(float64) float64 { return 2500 }},
		{"memory clock", "clocks.mem", asFloat(c.MemClockMHz), func(float64) float64 { return 8000 }},
		{"uncorrected ECC errors", "ecc.errors.uncorrected.volatile.total", asFloat(c.ECCUncorrected), func(float64) float64 { return 0 }},
	}
	for _, v := range values {
		want, known := t.smiValue(ctx, v.column)
		switch {
		case !known:
			t.seen("%s: not reported by nvidia-smi", v.what)
		case v.got == nil:
			t.expect(false, "%s is not reported; nvidia-smi says %v", v.what, want)
		default:
			agree := *v.got-want <= v.slack(want) && want-*v.got <= v.slack(want)
			t.expect(agree, "%s is %v, nvidia-smi says %v", v.what, *v.got, want)
			t.seen("%s %v, nvidia-smi %v", v.what, *v.got, want)
		}
	}
	if c.RecoveryAction != "" {
		t.expect(strings.EqualFold(c.RecoveryAction, "none"), "the recovery action is %s", c.RecoveryAction)
		t.seen("recovery action: %s", c.RecoveryAction)
	}
	t.seen("read %.1f s ago", time.Since(c.ReadAt).Seconds())
}

func asFloat[T int | int64](n *T) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

// smiValue is one value of this run's card; a card may not have it.
func (t *trial) smiValue(ctx context.Context, column string) (value float64, known bool) {
	rows := must(smi(ctx, "gpu", "uuid,"+column))
	i := slices.IndexFunc(rows, func(row []string) bool { return len(row) == 2 && row[0] == t.Card.UUID })
	if i < 0 {
		need(fmt.Errorf("nvidia-smi no longer shows GPU %d", t.Card.Index))
	}
	value, err := strconv.ParseFloat(rows[i][1], 64)
	return value, err == nil
}
