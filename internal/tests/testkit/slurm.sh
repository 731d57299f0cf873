#!/bin/sh
# A real Slurm in DIR, as root, on 127.0.0.1 alone; its config is
# DIR/etc/slurm.conf. "slurm.sh up DIR" starts it and "slurm.sh down DIR" ends it.
# What it has is in the environment: port (20 from there on are its own), nodes, gpus, shards (of a GPU), types (of the
# GPUs), cpus, accounts (yes: slurmdbd with a database of its own), and conf (more
# lines for slurm.conf, which win over those here).
set -eu
verb=$1 dir=$2
SLURM_CONF=$dir/etc/slurm.conf
export SLURM_CONF

each() { i=1; while [ "$i" -le "$1" ]; do "$2" "$i"; i=$((i + 1)); done; }

if [ "$verb" = down ]; then
	for pid in "$dir"/run/*.pid; do
		[ -s "$pid" ] || continue
		kill -9 "$(cat "$pid")" 2>/dev/null || true
	done
	# The steps of jobs outlive a slurmd, and try to tell it of their ends for ever.
	for cwd in $(find /proc/[0-9]*/cwd -lname "$dir/log" 2>/dev/null); do
		pid=${cwd#/proc/}
		kill -9 "${pid%/cwd}" 2>/dev/null || true
	done
	exit 0
fi

mkdir -p "$dir/etc" "$dir/state" "$dir/log" "$dir/run" "$dir/dev" "$dir/munge"
chmod 755 "$dir"
chown slurm: "$dir/state" "$dir/log" "$dir/run"
chown munge: "$dir/munge"
card() { mknod -m 666 "$dir/dev/nvidia$(($1 - 1))" c 240 "$1"; }
each "$gpus" card
head -c 1024 /dev/urandom >"$dir/munge/key"
chown munge: "$dir/munge/key"
chmod 400 "$dir/munge/key"

su -s /bin/sh munge -c "umask 022; munged --key-file=$dir/munge/key --socket=$dir/munge/socket --pid-file=$dir/munge/munged.pid --log-file=$dir/munge/log --seed-file=$dir/munge/seed"
ln -s ../munge/munged.pid "$dir/run/munged.pid"

# The database is made without its tests, and forgets on a crash of the machine
# instead of syncing.
if [ "$accounts" = yes ]; then
	mkdir "$dir/db"
	chown slurm: "$dir/db"
	mariadb-install-db --no-defaults --datadir="$dir/db" --user=slurm --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve >"$dir/log/install-db" 2>&1 || {
		cat "$dir/log/install-db"
		exit 1
	}
	setsid mariadbd --no-defaults --user=slurm --datadir="$dir/db" --socket="$dir/db/socket" --skip-networking --skip-grant-tables --pid-file="$dir/run/mariadbd.pid" \
		--log-bin= --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=32M --innodb-lock-wait-timeout=900 >"$dir/log/mariadbd.log" 2>&1 </dev/null &
	cat >"$dir/etc/slurmdbd.conf" <<EOF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 19))
AuthInfo=socket=$dir/munge/socket
CommunicationParameters=NoCtldInAddrAny
SlurmUser=slurm
PidFile=$dir/run/slurmdbd.pid
LogFile=$dir/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
EOF
	chown slurm: "$dir/etc/slurmdbd.conf"
	chmod 600 "$dir/etc/slurmdbd.conf"
fi

kinds=$(echo "$types" | wc -w)
# gres of a node: one word for each type, each with its part of the GPUs.
gres=gpu:$gpus
if [ "$kinds" -gt 0 ]; then
	gres=
	for type in $types; do gres="$gres${gres:+,}gpu:$type:$((gpus / kinds))"; done
fi
[ "$shards" = 0 ] || gres="$gres,shard:$((shards * gpus))"

{
	# Of a key that is there twice Slurm takes the last.
	cat <<EOF
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket=$dir/munge/socket
SlurmUser=slurm
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
Epilog=/bin/true
ReturnToService=2
MinJobAge=3600
KillWait=5
SlurmdParameters=config_overrides
GresTypes=gpu,shard
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
EOF
	if [ "$accounts" = yes ]; then
		cat <<EOF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 19))
AccountingStoragePass=$dir/munge/socket
AccountingStorageTRES=gres/gpu
EOF
	fi
	printf '%s\n' "$conf"
	node() { echo "NodeName=n$1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + $1)) CPUs=$cpus RealMemory=8000 Gres=$gres"; }
	each "$nodes" node
} >"$SLURM_CONF"
{
	echo AutoDetect=off
	if [ "$kinds" -eq 0 ]; then
		echo "NodeName=n[1-$nodes] Name=gpu File=$dir/dev/nvidia[0-$((gpus - 1))]"
	fi
	first=0
	for type in $types; do
		echo "NodeName=n[1-$nodes] Name=gpu Type=$type File=$dir/dev/nvidia[$first-$((first + gpus / kinds - 1))]"
		first=$((first + gpus / kinds))
	done
	[ "$shards" = 0 ] || echo "NodeName=n[1-$nodes] Name=shard Count=$((shards * gpus))"
} >"$dir/etc/gres.conf"

# wait_for WHAT COMMAND...: within a minute.
wait_for() {
	what=$1 deadline=$(($(date +%s) + 60))
	shift
	until "$@" >"$dir/log/last" 2>&1; do
		if [ "$(date +%s)" -gt "$deadline" ]; then
			echo "after a minute still not: $what"
			cat "$dir/log/last"
			timeout 5 sinfo -N -l || true
			for log in "$dir"/log/*.log; do echo "== $log" && tail -n 20 "$log"; done
			exit 1
		fi
		sleep 0.2
	done
}

if [ "$accounts" = yes ]; then
	wait_for "the database answers" mariadb --no-defaults --socket="$dir/db/socket" -e 'select 1'
	MYSQL_UNIX_PORT=$dir/db/socket slurmdbd
	wait_for "slurmdbd answers" timeout 5 sacctmgr -n list cluster
	timeout 20 sacctmgr -i add cluster lab >/dev/null
fi
slurmctld -f "$SLURM_CONF"
host() { mkdir -p "$dir/spool-n$1" && slurmd -N "n$1" -f "$SLURM_CONF"; }
each "$nodes" host
idle() { [ "$(timeout 5 sinfo -h -o '%T %D')" = "idle $nodes" ]; }
wait_for "all nodes are idle" idle
