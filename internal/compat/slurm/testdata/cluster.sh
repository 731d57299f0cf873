#!/bin/sh
# cluster.sh up DIR NODES GPUS CPUS: a real Slurm in DIR, as root, on 127.0.0.1
# alone; its config is DIR/etc/slurm.conf. cluster.sh down DIR ends it.
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
	exit 0
fi

nodes=$3 gpus=$4 cpus=$5
mkdir -p "$dir/etc" "$dir/state" "$dir/log" "$dir/run" "$dir/dev" "$dir/munge"
chmod 755 "$dir"
chown slurm: "$dir/state" "$dir/log" "$dir/run"
chown munge: "$dir/munge"
card() { mknod -m 666 "$dir/dev/nvidia$(($1 - 1))" c 240 "$1"; }
each "$gpus" card
head -c 1024 /dev/urandom >"$dir/munge/key"
chown munge: "$dir/munge/key"
chmod 400 "$dir/munge/key"

# Ports that nobody has, close together.
port=$(python3 -c '
import socket
def free(p):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", p)); return True
    except OSError:
        return False
    finally:
        s.close()
print(next(p for p in range(17000, 30000, 40) if all(free(p + i) for i in range(20))))')

{
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
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
EOF
	node() { echo "NodeName=n$1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + $1)) CPUs=$cpus RealMemory=8000 Gres=gpu:$gpus"; }
	each "$nodes" node
} >"$SLURM_CONF"
cat >"$dir/etc/gres.conf" <<EOF
AutoDetect=off
NodeName=n[1-$nodes] Name=gpu File=$dir/dev/nvidia[0-$((gpus - 1))]
EOF

su -s /bin/sh munge -c "umask 022; munged --key-file=$dir/munge/key --socket=$dir/munge/socket --pid-file=$dir/munge/munged.pid --log-file=$dir/munge/log --seed-file=$dir/munge/seed"
ln -s ../munge/munged.pid "$dir/run/munged.pid"
slurmctld -f "$SLURM_CONF"
host() { mkdir -p "$dir/spool-n$1" && slurmd -N "n$1" -f "$SLURM_CONF"; }
each "$nodes" host
tries=0
until [ "$(timeout 5 sinfo -h -o '%T %D' 2>/dev/null)" = "idle $nodes" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 300 ]; then
		timeout 5 sinfo -N -l || true
		tail -n 20 "$dir"/log/*.log
		exit 1
	fi
	sleep 0.2
done
