#!/bin/sh
# links.sh install|uninstall DIR NAME...: links to the berth in DIR under the
# names of the programs it stands in for. What somebody else put there under
# such a name is left alone, and said: exit status 1.
set -eu
verb=$1 dir=$2
shift 2

ours() { [ -L "$1" ] && case $(readlink "$1") in berth | "$dir/berth") ;; *) false ;; esac }

status=0
if [ "$verb" = install ] && [ ! -x "$dir/berth" ]; then
	echo "there is no $dir/berth to link to; make install puts it there" >&2
	exit 1
fi
for name; do
	link=$dir/$name
	if ours "$link"; then
		if [ "$verb" = install ]; then
			echo "$link is there already"
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
