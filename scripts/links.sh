#!/bin/sh
# links.sh install|uninstall DIR NAME...: links to the berth in DIR under the
# names of the programs it replaces. Other files with such a name are reported
# and left alone, with exit status 1. install-if-missing makes none if any of these
# programs is installed anywhere.
set -eu
verb=$1 dir=$2
shift 2

ours() { [ -L "$1" ] && case $(readlink "$1") in berth | "$dir/berth") ;; *) false ;; esac }

status=0
if [ "$verb" = install-if-missing ]; then
	for name; do
		found=$(command -v "$name" || true)
		if [ -n "$found" ] && ! ours "$found"; then
			echo "$found is installed: no links were made" >&2
			exit 1
		fi
	done
	verb=install
fi
if [ "$verb" = install ] && [ ! -x "$dir/berth" ]; then
	echo "$dir/berth is missing; install it with: make install" >&2
	exit 1
fi
for name; do
	link=$dir/$name
	if ours "$link"; then
		if [ "$verb" = install ]; then
			echo "$link already exists"
		else
			rm "$link"
			echo "$link removed"
		fi
	elif [ -e "$link" ] || [ -L "$link" ]; then
		echo "$link is not a link to berth: left alone" >&2
		status=1
	elif [ "$verb" = install ]; then
		ln -s berth "$link"
		echo "$link -> berth"
	fi
done
exit $status
