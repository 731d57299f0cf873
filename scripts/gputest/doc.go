// Command gputest proves berth on a real card: it runs berth as people do, with
// real GPU programs, and compares what berth says with what nvidia-smi says. It
// needs nothing but the programs beside it and python3, so that it can be
// carried to any host with a card (make gpu-test, docs/studies/hardware.md).
//
// It may not know anything of berth's inside: what it sees is what a user sees.
// It may not change a setting of a card, use managed memory, touch a daemon
// that it did not start, or leave anything running.
package main
