package reason

import "time"

// Times are written in the zone of now, which is that of whoever reads them.

// onDay writes a time of today in a form of its own, and another with its date.
func onDay(t, now time.Time, today string) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(today)
	}
	return t.Format("2006-01-02 15:04")
}

// clock writes a time to the minute, and what is near to the second.
func clock(t, now time.Time) string {
	if t.Sub(now) < 10*time.Minute {
		return onDay(t, now, time.TimeOnly)
	}
	return onDay(t, now, "15:04")
}

// between writes a stretch of time; what has begun is not said to begin.
func between(low, high, now time.Time) string {
	if !low.After(now) {
		return "by " + clock(high, now)
	}
	if a, b := clock(low, now), clock(high, now); a != b {
		return "between " + a + " and " + b
	}
	return "about " + clock(high, now)
}
