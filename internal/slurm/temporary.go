package slurm

import "strings"

// temporary are parts of what Slurm's programs print, in lower case, if trying
// again later helps.
var temporary = []string{
	// slurmctld or slurmdbd cannot be reached, restarts or is busy.
	"unable to contact slurm controller",
	"slurm controller not responding",
	"slurm temporarily unable to accept job",
	"in standby mode",
	"try again",
	"system submissions disabled",
	"resource temporarily unavailable",
	"socket timed out",
	"timed out",
	"zero bytes were transmitted or received",
	"connection refused",
	"connection reset",
	"broken pipe",
	"transport endpoint is not connected",
	"network is unreachable",
	"network is down",
	"no route to host",
	"host is down",
	"name or service not known",
	"temporary failure in name resolution",
	"communication connection failure",
	"communication shutdown failure",
	"message receive failure",
	"message send failure",
	"unexpected message received",
	"unexpected missing socket error",
	"failed to send entire message",
	"zero length message",
	"message length",
	"can't find an address",
	"slurm_msg_", // a function's name begins what it says about the connection
	"slurm_send_",
	"slurm_receive_",
	"problem talking to the database",
	"unable to connect to database",
	"connection to slurmdbd",
	// During an upgrade the two sides may not understand each other.
	"incompatible versions of client and server code",
	// The configuration comes from slurmctld, which does not answer.
	"could not establish a configuration source",
	"failed to fetch remote configs",
	"unable to establish controller machine",
	// munged is down, or clocks differ.
	"munge encode failed",
	"munge decode failed",
	"munge.socket",
	"invalid authentication credential",
	"authentication credential invalid",
	"authentication agent",
	"protocol authentication error",
	"auth_g_create",
	// slurmctld's disk is full.
	"i/o error writing script/environment to file",
	"unable to create job script",
	"no space left on device",
	// Nodes or the partition may come back.
	"required partition not available",
	"required node not available",
	"maintenance",
}

// crowded are those of a limit on how many jobs may be queued.
var crowded = []string{"maxsubmitjob", "grpsubmitjob", "maximum number of jobs"}

// Crowded reports whether sbatch failed at a limit on queued jobs: there is room once
// some have ended, and may be for fewer of them already.
func Crowded(stderr string) bool { return containsAny(stderr, crowded) }

// Temporary reports whether an error of sbatch, squeue, scancel, sacct or sinfo
// means that trying again later helps: Slurm cannot be reached or is busy, or a
// limit on queued jobs is reached. Any other error is a refusal.
func Temporary(stderr string) bool {
	return containsAny(stderr, temporary) || Crowded(stderr)
}

// containsAny reports whether a text has one of these parts, in any case.
func containsAny(text string, parts []string) bool {
	text = strings.ToLower(text)
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
