// Package tgpu is tgpu in front of berth's own commands: it rewrites its
// arguments, runs `berth submit`, `list`, `cancel`, `logs` or `stats`, and shows
// the result as tgpu does. It has no state.
//
// Its files, each of which uses those above it; tgpu.go knows the commands:
//
//	commands: submit list metrics tgpu
package tgpu
