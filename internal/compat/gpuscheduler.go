package compat

var gpuScheduler = program{name: "gpu-scheduler", usage: "usage: gpu-scheduler\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
