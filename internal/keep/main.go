package keep

// Main is the supervisor process. Its arguments are those after the program's
// name (and after the word that selects the supervisor where berth runs as its
// own): the token. It returns the exit status.
func Main(args []string) int  { return 2 }
func SignalName(n int) string { return itoa(n) }
