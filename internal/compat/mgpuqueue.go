package compat

var mgpuQueue = program{name: "mgpu_queue", usage: "usage: mgpu_queue\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
