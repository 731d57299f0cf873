package compat

var tgpu = program{name: "tgpu", usage: "usage: tgpu\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
