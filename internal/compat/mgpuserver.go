package compat

var mgpuServer = program{name: "mgpu_scheduler_server", usage: "usage: mgpu_scheduler_server\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
