package compat

var mgpuCancel = program{name: "mgpu_cancel", usage: "usage: mgpu_cancel\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
