// Package gpu is berth's view of the cards: where readings come from (the
// helper berth-gpu, nvidia-smi, a simulation), what they mean for placement
// (Meter) and for health (Health), and what other berths on the machine have
// booked (Ledger).
//
// It knows a job only as a key that holds cards. It decides nothing and starts
// no programs but berth-gpu and nvidia-smi. It never turns a value it could
// not read into zero: unknown values are marked as unknown.
package gpu
