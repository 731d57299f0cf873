// Package gpu is the cards as berth sees them: where their numbers come from
// (the helper berth-gpu, nvidia-smi, a simulated box), what those numbers mean
// for placement (Meter), and what other berths on the machine have reserved
// (Ledger).
//
// It knows a job only as a key that holds cards. It decides nothing, starts
// nothing but berth-gpu and nvidia-smi, and never turns a number it could not
// read into zero: what is not known is said to be not known.
package gpu
