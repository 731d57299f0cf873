// Package mcp gives berth to agents: the Model Context Protocol over standard
// input and output, in which an agent lists tools and calls them. Each tool is a
// request to the daemon with the rights of the user who runs it.
//
// It may not know more than a client of the API: no store, no engine, no file of a
// job. Answers are bounded, and text that jobs or other users wrote is cleaned
// before an agent sees it.
package mcp
