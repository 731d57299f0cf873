// Package text formats text for people: what is safe to print on a terminal, how
// wide it is there, and how numbers, sizes, times and lists are written and
// parsed.
//
// # What is safe to print
//
// Names, commands, paths, logs and the output of other programs may try to control
// the reader's terminal, forge a line of berth's output or imitate another name.
// None of it is printed as it is:
//
//   - [Line] is for everything within a line: names, reasons, messages. It keeps
//     letters, marks, digits, punctuation, symbols and the space of any script
//     ([unicode.IsPrint]). Everything else becomes U+FFFD: control characters
//     (C0, DEL, C1), and with them escape sequences and line ends; characters
//     that change the writing direction; line and paragraph separators;
//     invisible, private and unassigned characters; invalid UTF-8.
//   - [Words] is Line for several lines that must become one, and [Said] for a
//     message of another program, of any length.
//   - [Escape] keeps the same and line ends, and shows the rest as escapes
//     (\x1b). It is for messages that quote a request.
//   - [LogWriter] is for a log on a terminal. Line ends, tabs, carriage returns
//     and colours pass, and so do harmless characters such as joiners and private
//     ones. Control characters, direction changes, line separators and invalid
//     bytes do not.
//   - [JSONWriter] and [JSON] are for programs. The content is exact: what Line
//     would replace is written as \u escapes.
//
// A [Table] applies Line to its cells. Only output to a file, a pipe or an
// attached terminal is passed on unchanged.
//
// The package uses no clock, file or terminal, and imports no other package of
// berth.
//
// Below it, problem is the one kind of error that users see.
package text
