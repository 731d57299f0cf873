// Command gputest tests berth on a real GPU: it runs berth as users do, with
// real GPU programs, and compares berth's figures with nvidia-smi's. It needs
// only the programs beside it and python3, so that it can be copied to any
// host with a GPU (make gpu-test, docs/studies/hardware.md).
//
// It may not use anything of berth's inside, except to write a batch as berth hands
// it over to Slurm: it sees what a user sees. It may
// not change a setting of a GPU, use managed memory, touch a daemon that it
// did not start, or leave anything running.
package main
