// Package text is what berth's words look like: what a terminal may be shown,
// how wide it is there, and how numbers, sizes, times and lists are written and
// read.
//
// # What a terminal may be shown
//
// Names, commands, paths, logs and the answers of other programs are written by
// people who may want to drive somebody else's terminal, forge a line of berth's
// or make a name look like another. So none of it is printed as it came:
//
//   - [Line] is for everything within a line: names, reasons, messages. It keeps
//     letters, marks, digits, punctuation, symbols and the blank of any script
//     ([unicode.IsPrint]). Everything else becomes U+FFFD: control characters
//     (C0, DEL, C1), so also escape sequences and line ends; characters that
//     turn the direction of writing; line and paragraph separators; invisible,
//     private and unassigned characters; bytes that are not UTF-8.
//   - [Words] is Line for text of several lines that has to fit into one, and
//     [Said] for the words of another program, which may have any length.
//   - [Escape] keeps the same and line ends, and shows the rest as escapes
//     (\x1b). It is for messages that quote a request.
//   - [LogWriter] is for a log on a terminal. Line ends, tabs, carriage returns
//     and colours pass, and so do characters that a job may well print and that
//     change nothing but themselves (joiners, private ones). Controls, changes of
//     direction, separators of lines and bad bytes never do.
//   - [JSONWriter] and [JSON] are for what programs read. The content is exact:
//     what Line would replace is written as \u escapes, which read back as the
//     same text.
//
// A [Table] shows its cells as lines. Only what a job or a person sends to a
// file, a pipe or an attached terminal of its own is passed on untouched.
//
// The package knows no clock, file or terminal, and imports nothing of ours.
package text
