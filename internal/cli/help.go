package cli

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"berth/docs"
	"berth/internal/cli/manual"
	"berth/internal/cli/render"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// pageColumns bounds how wide a page is shown: longer lines are hard to read.
const pageColumns = 100

// helpColumns is how wide a terminal is unless someone made it wider.
const helpColumns = 80

// pageKinds are the kinds of pages, in the order a newcomer needs them.
var pageKinds = []struct{ kind, files, title string }{
	{"tutorial", "tutorial.md", "Start here:"},
	{"howto", "howto/*.md", "How to:"},
	{"reference", "reference/*.md", "Reference:"},
	{"explanation", "explanation/*.md", "How it works:"},
}

// topicJSON is a page as berth help --json lists it.
type topicJSON struct {
	Topic string `json:"topic"`
	Kind  string `json:"kind"`
	Title string `json:"title"`
}

func newHelp() *cobra.Command {
	var asJSON bool
	var man string
	cmd := &cobra.Command{
		Use:   "help [VERB | TOPIC [SECTION]]",
		Short: "Help on a verb, or a page of the documentation",
		Long: `Show the help of a verb, or a page of the documentation. Without a word, list
both. A page can also be named with its kind (howto/why), and a word after it
shows only the section whose heading has that word.

On a terminal the page goes through $PAGER (default: less).`,
		Example: `  berth help                  all verbs and topics
  berth help submit           the same as berth submit --help
  berth help jobspec          every field of a job
  berth help config limits    one section of a page
  berth help --man ./man      write the man pages into a directory

Exit status: 0 it was shown, 1 it could not be written, 2 there is no such verb,
topic or section.`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case man != "" && len(args) == 0:
				return writeMan(cmd.Root(), man)
			case asJSON && len(args) == 0:
				return printJSON(cmd.OutOrStdout(), topics())
			case man != "" || asJSON:
				return problem.Newf(problem.Invalid, "see berth help --help", "--json and --man take no topic")
			}
			return showHelp(cmd.Root(), cmd.OutOrStdout(), args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return helpWords(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "list the topics as JSON")
	cmd.Flags().StringVar(&man, "man", "", "write the man pages into `DIR`/man1, man5 and man7")
	return cmd
}

// pages are all pages, by kind and then by topic.
func pages() (list []*manual.Page) {
	for _, k := range pageKinds {
		names, err := fs.Glob(docs.Pages, k.files)
		if err != nil {
			panic("bug: " + err.Error())
		}
		for _, name := range names {
			source, err := docs.Pages.ReadFile(name)
			if err != nil {
				panic("bug: " + err.Error()) // they are part of the program
			}
			list = append(list, manual.Parse(name, source))
		}
	}
	return list
}

func topics() (list []topicJSON) {
	for _, p := range pages() {
		list = append(list, topicJSON{p.Topic, p.Kind, p.Title})
	}
	return list
}

// findPage is the page of a topic, which may have its kind before it.
func findPage(word string) *manual.Page {
	for _, p := range pages() {
		if word == p.Topic || word == p.Kind+"/"+p.Topic {
			return p
		}
	}
	return nil
}

// showHelp shows what the words name. A verb comes first: its help says which
// page has the same name.
func showHelp(root *cobra.Command, out io.Writer, words []string) error {
	if len(words) == 0 {
		return showIndex(root, out)
	}
	if cmd, rest, err := root.Find(words); err == nil && cmd != root && len(rest) == 0 {
		cmd.InitDefaultHelpFlag()
		if err := cmd.Help(); err != nil {
			return err
		}
		if p := findPage(words[0]); p != nil && len(words) == 1 {
			fmt.Fprintf(out, "\nThere is also a page about it: berth help %s/%s\n", p.Kind, p.Topic)
		}
		return nil
	}
	page := findPage(words[0])
	if page == nil {
		if cmd, _, err := root.Find(words[:1]); err == nil && cmd != root {
			return problem.Newf(problem.Invalid, "berth help "+words[0], "%s is a command, and only pages have sections", words[0])
		}
		return unknownTopic(root, words[0])
	}
	if len(words) > 1 {
		title, err := findSection(page, strings.Join(words[1:], " "))
		if err != nil {
			return err
		}
		page = page.Section(title)
	}
	return showPage(root, page, out)
}

// showIndex is the help of berth, and the topics below it.
func showIndex(root *cobra.Command, out io.Writer) error {
	var index bytes.Buffer
	root.SetOut(&index)
	defer root.SetOut(out)
	if err := root.Help(); err != nil {
		return err
	}
	list, word := topics(), topicWords(root)
	widest := 0
	for _, t := range list {
		widest = max(widest, len(word(t.Topic)))
	}
	fmt.Fprint(&index, "\nPages (berth help TOPIC):\n")
	for _, k := range pageKinds {
		fmt.Fprintf(&index, "\n%s\n", k.title)
		for _, t := range list {
			if t.Kind == k.kind {
				fmt.Fprintf(&index, "  %s  %s\n", text.Pad(word(t.Topic), widest), text.Cut(t.Title, helpColumns-widest-4))
			}
		}
	}
	return pageThrough(out, index.String())
}

// helpWords are the words that help takes: verbs and topics.
func helpWords(root *cobra.Command) (words []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			words = append(words, c.Name())
		}
	}
	for _, t := range topics() {
		if !slices.Contains(words, t.Topic) {
			words = append(words, t.Topic)
		}
	}
	return words
}

func unknownTopic(root *cobra.Command, word string) error {
	var mentions []string
	for _, p := range pages() {
		if slices.ContainsFunc(p.Sections(), func(title string) bool { return beginsWord(title, word) }) {
			mentions = append(mentions, fmt.Sprintf("berth help %s %s", p.Topic, strings.ToLower(word)))
		}
	}
	hint := "all topics: berth help"
	if strings.EqualFold(word, "man") {
		hint = "berth help --man DIR writes the man pages; " + hint
	} else if command := meant("berth", word); command != "" {
		hint = fmt.Sprintf("did you mean %s? %s", command, hint)
	} else if near := text.Nearest(word, helpWords(root)); near != "" {
		hint = fmt.Sprintf("did you mean berth help %s? %s", near, hint)
	} else if len(mentions) > 0 {
		hint = fmt.Sprintf("did you mean %s? %s", strings.Join(mentions, ", "), hint)
	}
	return problem.Newf(problem.Invalid, hint, "no verb or topic is named %q", word)
}

// beginsWord reports whether a word of a heading begins with this one, in any case.
func beginsWord(title, word string) bool {
	at := strings.Index(strings.ToLower(title), strings.ToLower(word))
	return at == 0 || at > 0 && !unicode.IsLetter(rune(title[at-1]))
}

// findSection is the heading that is the words, or else the first that has them.
func findSection(page *manual.Page, words string) (string, error) {
	titles := page.Sections()
	plain := func(title string) string { return strings.Trim(title, "`[]") }
	if i := slices.IndexFunc(titles, func(title string) bool { return strings.EqualFold(plain(title), words) }); i >= 0 {
		return titles[i], nil
	}
	if i := slices.IndexFunc(titles, func(title string) bool { return strings.Contains(strings.ToLower(title), strings.ToLower(words)) }); i >= 0 {
		return titles[i], nil
	}
	return "", problem.Newf(problem.Invalid, "sections: "+strings.Join(titles, "; "), "no section of %s is named %q", page.Topic, words)
}

// showPage writes a page, through a pager if a person reads it.
func showPage(root *cobra.Command, page *manual.Page, out io.Writer) error {
	style := manual.Style{Columns: helpColumns, Word: topicWords(root)}
	if render.StdoutIsTerminal(out) {
		columns, _ := render.TerminalSize(out)
		style.Columns, style.Colour = min(columns, pageColumns), os.Getenv("NO_COLOR") == ""
	}
	return pageThrough(out, page.Text(style))
}

// topicWords finds what to type for a topic: its name, with its kind where a
// verb has the same name.
func topicWords(root *cobra.Command) func(topic string) string {
	words := map[string]string{}
	for _, t := range topics() {
		words[t.Topic] = t.Topic
		if cmd, _, err := root.Find([]string{t.Topic}); err == nil && cmd != root {
			words[t.Topic] = t.Kind + "/" + t.Topic
		}
	}
	return func(topic string) string { return words[topic] }
}

// pageThrough shows a text with the user's pager, if out is a terminal and the
// pager starts.
func pageThrough(out io.Writer, content string) error {
	command, named := os.LookupEnv("PAGER")
	if !named {
		command = "less"
	}
	if command = strings.TrimSpace(command); command != "" && command != "cat" && render.StdoutIsTerminal(out) {
		pager := exec.Command("sh", "-c", command)
		pager.Stdin, pager.Stdout, pager.Stderr = strings.NewReader(content), out, os.Stderr
		if os.Getenv("LESS") == "" { // colours shown; no pager for less than a screen
			pager.Env = append(os.Environ(), "LESS=FRX")
		}
		if _, err := exec.LookPath(strings.Fields(command)[0]); err == nil && pager.Run() == nil {
			return nil
		}
	}
	_, err := io.WriteString(out, content)
	return err
}
