package slurm

import "berth/internal/compat/frontend"

// sacctmgr and sshare are asked by clients whether an account exists before they
// name it. berth has none and takes any name, so each list is empty.
var (
	sacctmgr = frontend.Program{Name: "sacctmgr", Usage: sacctmgrUsage, Run: runSacctmgr}
	sshare   = frontend.Program{Name: "sshare", Usage: sshareUsage, Run: func(*frontend.Call) int { return 0 }}
)

const sacctmgrUsage = `usage: sacctmgr [OPTION...] list|show ENTITY` + noAccounts + `  sacctmgr -n list user format=account
`

const sshareUsage = `usage: sshare [OPTION...]` + noAccounts + `  sshare -U
`

const noAccounts = `

List nothing: berth has no accounts, and ignores the one that a job names. berth
stats has each user's usage.

  -h, --help  print this

Exit status: 0 listed; 1 anything else that was asked for.

Example:
`

func runSacctmgr(c *frontend.Call) int {
	for _, word := range c.Args {
		switch word {
		case "list", "show":
			return 0
		case "add", "create", "modify", "delete", "remove", "load", "dump", "archive":
			return c.Misuse("berth has no accounts to "+word, frontend.Failed)
		}
	}
	return c.Misuse("expected list or show, found neither", frontend.Failed)
}
