// Package manual turns Markdown pages into text for a terminal and into man
// pages. It is given the pages: it opens no file and knows no command.
package manual
