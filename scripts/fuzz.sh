#!/bin/sh
# Run every fuzz target for a while: scripts/fuzz.sh 20s
set -eu
cd "$(dirname "$0")/.."
for file in $(grep -rl --include='*_test.go' '^func Fuzz' internal); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
		echo "$(dirname "$file") $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-20s}" "./$(dirname "$file")" >/tmp/berth-fuzz.$$ 2>&1 ||
			{ cat /tmp/berth-fuzz.$$; rm -f /tmp/berth-fuzz.$$; exit 1; }
	done
done
rm -f /tmp/berth-fuzz.$$
