package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// jobScript is what every job of these tests runs. Its books are one file,
// appended to with one write per entry, so that their order is the order in
// which things happened. Its locks on its cards are inherited by whatever it
// starts, and so are held for exactly as long as a process of it lives.
const jobScript = `
line=$1 lock=$2 seconds=$3 code=$4 kind=$5
say() { printf '%s\n' "$*" >>"$SOAK/ledger"; }
say start $line $BERTH_ATTEMPT $$ ${BERTH_GPUS:--}

fd=4
for card in $(printf '%s' "$BERTH_GPUS" | tr , ' '); do
	eval "exec $fd>>\"$SOAK/card$card\""
	flock -n $lock $fd || say overlap $line $BERTH_ATTEMPT on card $card
	fd=$((fd + 1))
done

row=0
while [ $row -lt 20 ]; do
	echo "row $row of $line.$BERTH_ATTEMPT"
	row=$((row + 1))
done
say printed $line $BERTH_ATTEMPT
if [ -e "$SOAK/quick" ]; then kind=plain seconds=0; fi

case $kind in
child)
	setsid sh -c 'while kill -0 $1 2>/dev/null; do sleep 0.02; done; sleep 0.05; printf "late words of $2"' sh $$ $line.$BERTH_ATTEMPT &
	sleep $seconds
	;;
tree)
	setsid sh -c 'setsid sleep 301 & setsid sleep 302 & exit' &
	sh -c 'sleep 303 & sleep 304' &
	say grown $line $BERTH_ATTEMPT
	sleep $seconds
	;;
sim)
	berth simjob --vram 3500 --hold $seconds --exit-code $code
	code=$?
	;;
oom)
	berth simjob --vram 3500 --hold $seconds --exit-code $code --oom-once "$SOAK/oom$line"
	code=$?
	;;
parks)
	berth simjob --vram 14000 --hold $seconds --exit-code $code
	code=$?
	;;
parked)
	berth simjob --vram 14000 --hold 600 &
	sim=$!
	say ready $line $BERTH_ATTEMPT
	while ! [ -e "$SOAK/gate" ]; do
		printf . >>"$SOAK/beat$line"
		sleep 0.02
	done
	kill $sim
	wait $sim
	;;
polite)
	trap 'say term $line $BERTH_ATTEMPT; exit 143' TERM
	say ready $line $BERTH_ATTEMPT
	sleep $seconds
	;;
stubborn)
	trap '' TERM
	setsid sleep $seconds &
	say ready $line $BERTH_ATTEMPT
	sleep $seconds
	;;
warned)
	trap 'say warned $line $BERTH_ATTEMPT' USR1
	trap 'say term $line $BERTH_ATTEMPT; exit 0' TERM
	left=$((${seconds%.*} * 20))
	while [ $left -gt 0 ]; do
		sleep 0.05
		left=$((left - 1))
	done
	;;
gated)
	say ready $line $BERTH_ATTEMPT
	while ! [ -e "$SOAK/gate" ]; do sleep 0.02; done
	;;
until)
	say ready $line $BERTH_ATTEMPT
	read -r go <"$SOAK/until" || true
	;;
again) if [ $BERTH_ATTEMPT -eq 1 ]; then sleep $seconds; fi ;;
fails)
	sleep 0.02
	if [ $BERTH_ATTEMPT -eq 1 ]; then
		say end $line $BERTH_ATTEMPT 9
		exit 9
	fi
	;;
*) sleep $seconds ;;
esac

printf 'last words of %s.%s' $line $BERTH_ATTEMPT
say end $line $BERTH_ATTEMPT $code
if [ $kind = signal ]; then kill -USR1 $$; fi
if [ $kind = suicide ]; then kill -KILL $$; fi
exit $code
`

// line is one line of a jobs file, and what has to become of it.
type line struct {
	number  int
	block   string // without its brackets
	cards   int
	needMiB int64 // of each of its cards; 0: not said
	alone   bool  // nothing else may be on its cards
	hold    time.Duration
	code    int
	kind    string
	retried bool   // its first attempt fails
	ends    string // its outcome, where it does not end by itself
}

func (l line) text() string {
	lock := "-s"
	if l.alone {
		lock = "-x"
	}
	command := fmt.Sprintf(`exec sh "$SOAK/job.sh" %d %s %.3f %d %s`, l.number, lock, l.hold.Seconds(), l.code, l.kind)
	if l.block == "" {
		return command
	}
	return "[" + l.block + "] " + command
}

// outcome is how the line ends if nothing but berth is killed.
func (l line) outcome() string {
	switch {
	case l.ends != "":
		return l.ends
	case l.kind == "signal":
		return "signal:USR1"
	case l.kind == "suicide":
		return "signal:KILL"
	case l.code != 0:
		return fmt.Sprintf("exit:%d", l.code)
	}
	return "ok"
}

// status is what the line adds to the exit status of berth run.
func (l line) status() int {
	if l.kind == "signal" || l.kind == "suicide" {
		return 1
	}
	return l.code
}

func worst(lines []line) int {
	status := 0
	for _, l := range lines {
		status = max(status, l.status())
	}
	return status
}

func (l line) attempts() int {
	if l.retried {
		return 2
	}
	return 1
}

// log is what an attempt prints. What simulated GPU programs say of
// themselves comes between the two parts.
func (l line) log(attempt int) (begin, end string) {
	var rows strings.Builder
	for row := range 20 {
		fmt.Fprintf(&rows, "row %d of %d.%d\n", row, l.number, attempt)
	}
	end = fmt.Sprintf("last words of %d.%d", l.number, attempt)
	if l.kind == "child" {
		end += fmt.Sprintf("late words of %d.%d", l.number, attempt)
	}
	return rows.String(), end
}

// demands are the ways to ask for cards.
var demands = []line{
	{block: "", cards: 1, alone: true},
	{block: "", cards: 1, alone: true},
	{block: "gpus=2", cards: 2, alone: true},
	{block: "vram=2G exclusive", cards: 1, needMiB: 2048, alone: true},
	{block: "vram=6G", cards: 1, needMiB: 6144, kind: "sim"},
	{block: "vram=9G", cards: 1, needMiB: 9216},
	{block: "vram=4G gpus=2", cards: 2, needMiB: 4096, kind: "sim"},
	{block: "gpus=0.5", cards: 1, needMiB: 11673},
	{block: "gpus=0.3", cards: 1, needMiB: 7004, kind: "sim"},
	{block: "gpus=0", cards: 0},
	{block: "vram=4G retries=1", cards: 1, needMiB: 4096, kind: "oom", retried: true},
}

// mixture is a jobs file with a bit of everything.
func mixture(rng *rand.Rand, n int, longest time.Duration) []line {
	lines := make([]line, n)
	for i := range lines {
		l := demands[rng.IntN(len(demands))]
		l.number = i + 1
		l.hold = 20*time.Millisecond + upTo(rng, longest)
		if l.kind == "" {
			l.kind = []string{"plain", "plain", "child", "signal"}[rng.IntN(4)]
		}
		if rng.IntN(5) == 0 && l.kind != "signal" {
			l.code = []int{1, 3, 7, 41}[rng.IntN(4)]
		}
		lines[i] = l
	}
	return lines
}
