package compat

var gpusched = program{name: "gpusched", usage: "usage: gpusched\n", run: func(c *Call) int {
	c.complain("under construction", "")
	return exitFailed
}}
