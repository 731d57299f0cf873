package compat

var mgpuSrun = program{name: "mgpu_srun", usage: "usage: mgpu_srun\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
