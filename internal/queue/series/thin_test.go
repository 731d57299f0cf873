package series

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// drawPoints draws points in order of time, with ties and long gaps.
func drawPoints(t *rapid.T) []Point {
	at := noon
	var points []Point
	for range rapid.IntRange(0, 200).Draw(t, "n") {
		at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 5, 60, 1200}).Draw(t, "gap")) * time.Second)
		points = append(points, Point{
			At: at, MiB: rapid.Int64Range(-1, 90_000).Draw(t, "MiB"), UtilPct: float64(rapid.IntRange(-1, 100).Draw(t, "util")),
			PowerW: Unknown, TempC: float64(rapid.IntRange(-1, 99).Draw(t, "temp")), Begins: rapid.Bool().Draw(t, "begins"),
		})
	}
	return points
}

func highest(points []Point) (mib int64, temp float64) {
	mib, temp = Unknown, Unknown
	for _, p := range points {
		mib, temp = max(mib, p.MiB), max(temp, p.TempC)
	}
	return mib, temp
}

func TestThinningKeepsTheMaximaWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := drawPoints(t)
		most := rapid.IntRange(1, 50).Draw(t, "most")
		thin := Thin(points, most)
		if len(thin) > most && len(points) > most {
			t.Fatalf("%d points became %d, want at most %d", len(points), len(thin), most)
		}
		wantMiB, wantTemp := highest(points)
		if mib, temp := highest(thin); mib != wantMiB || temp != wantTemp {
			t.Fatalf("the highest were %d MiB and %v degrees, now %d and %v", wantMiB, wantTemp, mib, temp)
		}
		for i := 1; i < len(thin); i++ {
			if thin[i].At.Before(thin[i-1].At) {
				t.Fatalf("point %d is before the one before it", i)
			}
		}
		if n := len(points); n > 0 && most > 1 && (!thin[0].At.Equal(points[0].At) || len(thin) > 1 && !thin[len(thin)-1].At.Equal(points[n-1].At)) {
			t.Fatalf("from %s to %s became %s to %s", points[0].At, points[n-1].At, thin[0].At, thin[len(thin)-1].At)
		}
	})
}

func TestAMeanCountsOnlyWhatWasMeasured(t *testing.T) {
	points := []Point{{At: noon, UtilPct: 100, PowerW: 300}, {At: noon, UtilPct: Unknown, PowerW: 100}, {At: noon, UtilPct: 50, PowerW: 200}}
	if thin := Thin(points, 1); thin[0].UtilPct != 75 || thin[0].PowerW != 200 {
		t.Errorf("the means are %+v", thin[0])
	}
}

func TestABlockIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		track := Track{Kind: Job, Owner: rapid.String().Draw(t, "owner"), ID: rapid.String().Draw(t, "id"), Attempt: rapid.IntRange(0, 1<<20).Draw(t, "attempt"), GPU: rapid.IntRange(0, 4096).Draw(t, "gpu")}
		p := Point{At: noon.Add(time.Duration(rapid.IntRange(0, 3_599_999).Draw(t, "ms")) * time.Millisecond), MiB: rapid.Int64Range(-1, 1<<31).Draw(t, "MiB"),
			UtilPct: float64(rapid.IntRange(-1, 100).Draw(t, "util")), PowerW: float64(rapid.IntRange(-1, 2000).Draw(t, "power")), TempC: float64(rapid.IntRange(-1, 120).Draw(t, "temp")), Begins: rapid.Bool().Draw(t, "begins")}
		data := appendBlock(nil, noon, track, []Point{p, p})
		b, rest, err := nextBlock(data)
		if err != nil || len(rest) != 0 || b.track != track {
			t.Fatalf("read %+v, %d bytes left, %v; want %+v", b.track, len(rest), err, track)
		}
		for _, got := range b.appendPoints(nil, noon) {
			if got != p {
				t.Fatalf("read %+v, want %+v", got, p)
			}
		}
	})
}

func FuzzBlock(f *testing.F) {
	f.Add(appendBlock(nil, noon, Track{Kind: Job, Owner: "ann", ID: "17"}, []Point{{At: noon, MiB: 7}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for len(data) > 0 {
			b, rest, err := nextBlock(data)
			if err != nil {
				return
			}
			b.appendPoints(nil, noon)
			if len(rest) >= len(data) {
				t.Fatal("no progress")
			}
			data = rest
		}
	})
}
