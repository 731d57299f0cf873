// Package gpu is berth's view of the cards: where readings come from (the
// helper berth-gpu, nvidia-smi, a simulation), what they mean for placement
// (Meter) and for health (Health), and what other berths on the machine have
// booked (Ledger).
//
// It knows a job only as a key that holds cards. It decides nothing and starts
// no programs but berth-gpu and nvidia-smi. It never turns a value it could
// not read into zero: unknown values are marked as unknown.
//
// Its files are in groups, and each uses only those above it:
//
//	what a reading has: device cpus process xid topology wire
//	health: health healthcard healthxid healthsave
//	what jobs have: lockholder ledger ledgerfile
//	the helper: sysfs smicommand helperlog helpertiming helperprocess helperretry helper helperfail helperprobe helperlimit
//	what the kernel and nvidia-smi say: kmsg kmsgmerge opennone smifields smiparse smi
//	one source of readings: numbering opencards openswitch simenv simbox sim simfault simprocess simdriver
//	  simjob open
//	what readings mean: meter metercard meteridle meterleft
package gpu
