package slurm

import "strings"

// Why is why a job waits in Slurm, in plain words, with Slurm's own word. A reason
// that berth does not know is returned as it is.
func Why(e Entry) string {
	// Slurm writes some sentences with underscores for spaces.
	own := strings.ReplaceAll(e.Reason, "_", " ")
	for _, s := range sentences {
		if strings.HasPrefix(strings.ToLower(own), s.begins) {
			return s.words + " (" + s.code + ")"
		}
	}
	end := strings.IndexAny(e.Reason, ",( ")
	if end < 0 {
		end = len(e.Reason)
	}
	words, known := reasons[e.Reason[:end]]
	if !known {
		words, known = limitWords(e.Reason[:end])
	}
	if !known {
		return e.Reason
	}
	return words + " (" + e.Reason + ")"
}

// sentences are the reasons that are not one word, by their beginning in lower
// case.
var sentences = []struct{ begins, words, code string }{
	{"nodes required for job are down", "its nodes are down, drained or reserved for partitions with a higher priority", "Resources"},
	{"launch failed requeued held", "Slurm could not start it on a node and holds it; release it with: scontrol release", "launch failed requeued held"},
	{"user env retrieval failed", "Slurm could not read your login environment on a node and holds the job; release it with: scontrol release", "user env retrieval failed"},
	{"job requeued in held state", "Slurm requeued it and holds it; release it with: scontrol release", "requeued held"},
	{"job's account not permitted", "its account may not use this partition", "AccountNotAllowed"},
	{"job's qos not permitted", "its QOS may not use this partition", "QOSNotAllowed"},
}

var reasons = map[string]string{
	"Priority":                 "other jobs have a higher priority",
	"Resources":                "waits for free resources: GPUs, CPUs or memory",
	"Dependency":               "waits for another Slurm job",
	"DependencyNeverSatisfied": "waits for a Slurm job that can never end as required",
	"BeginTime":                "its start time has not come",
	"JobHeldUser":              "is held in Slurm; release it with: berth release",
	"JobHeldAdmin":             "an administrator of the cluster holds it",
	"JobHoldMaxRequeue":        "Slurm requeued it too often and holds it",
	"JobArrayTaskLimit":        "as many tasks of its array run as its limit allows",
	"Licenses":                 "waits for a licence",
	"ReqNodeNotAvail":          "a node that it requires is down, drained or reserved",
	"Reservation":              "waits for its reservation to begin",
	"ReservationDeleted":       "its reservation was deleted",
	"PartitionDown":            "its partition is down",
	"PartitionInactive":        "its partition does not start jobs at present",
	"PartitionNodeLimit":       "it asks for more nodes than its partition allows",
	"PartitionTimeLimit":       "its time limit exceeds that of its partition",
	"PartitionConfig":          "its request does not match the settings of its partition",
	"NodeDown":                 "a node that it requires is down",
	"BadConstraints":           "no node fits what it requires",
	"InvalidAccount":           "its account is not valid",
	"InvalidQOS":               "its QOS is not valid",
	"AccountNotAllowed":        "its account may not use this partition",
	"QOSNotAllowed":            "its QOS may not use this partition",
	"QOSUsageThreshold":        "its account has used too much for this QOS",
	"AssociationJobLimit":      "the limit of its account on running jobs is reached",
	"AssociationResourceLimit": "the limit of its account on resources is reached",
	"AssociationTimeLimit":     "the limit of its account on time is reached",
	"QOSJobLimit":              "the limit of its QOS on running jobs is reached",
	"QOSResourceLimit":         "the limit of its QOS on resources is reached",
	"QOSTimeLimit":             "the limit of its QOS on time is reached",
	"Cleaning":                 "is requeued; its last run is being cleaned up",
	"Prolog":                   "the cluster prepares its node",
	"SchedDefer":               "waits for the next round of Slurm's scheduler",
	"BurstBufferResources":     "waits for space in the burst buffer",
	"BurstBufferStageIn":       "its files are copied into the burst buffer",
	"BurstBufferOperation":     "an operation of the burst buffer failed",
	"FrontEndDown":             "no front-end node is up",
	"SystemFailure":            "Slurm, its file system or its network failed",
	"JobLaunchFailure":         "Slurm could not start it",
	"NonZeroExitCode":          "it failed",
	"RaisedSignal":             "it was ended by a signal",
	"TimeLimit":                "it reached its time limit",
	"InactiveLimit":            "it reached Slurm's limit for inactive jobs",
	"DeadLine":                 "its deadline has passed",
	"FedJobLock":               "waits for the clusters to agree on where it runs",
	"OutOfMemory":              "it ran out of host memory",
}

// limited are the resources in the names of limits. A name comes before those
// that it begins with.
var limited = []struct{ name, words string }{
	{"GRES", "GPUs"}, {"Cpu", "CPUs"}, {"CPU", "CPUs"}, {"Jobs", "running jobs"}, {"SubmitJobs", "submitted jobs"}, {"SubmitJob", "submitted jobs"}, {"Job", "running jobs"},
	{"Memory", "memory"}, {"Mem", "memory"}, {"Nodes", "nodes"}, {"Node", "nodes"}, {"WallDuration", "time"}, {"Wall", "time"}, {"Billing", "billing units"},
	{"License", "licences"}, {"Energy", "energy"}, {"BB", "burst buffer space"}, {"Unknown", "a resource"},
}

// limitWords explains a limit of an account, a QOS or a partition: Slurm has some
// hundred, whose names follow one scheme, as in QOSMaxGRESPerUser.
func limitWords(code string) (words string, known bool) {
	owner, rest := "Slurm", code
	for _, o := range []struct{ prefix, words string }{{"Assoc", "its account"}, {"QOS", "its QOS"}} {
		if after, found := strings.CutPrefix(code, o.prefix); found {
			owner, rest = o.words, after
			break
		}
	}
	kind := ""
	for _, k := range []string{"Max", "Grp", "Min"} {
		if after, found := strings.CutPrefix(rest, k); found {
			kind, rest = k, after
			break
		}
	}
	if kind == "" {
		return "", false
	}
	for _, l := range limited {
		after, found := strings.CutPrefix(rest, l.name)
		if !found {
			continue
		}
		return limitSentence(owner, kind, l.words, strings.TrimSuffix(after, "Limit"))
	}
	return "", false
}

func limitSentence(owner, kind, resource, scope string) (words string, known bool) {
	amount := resource
	if stem, found := strings.CutSuffix(scope, "Minutes"); found {
		amount, scope = "the total time of "+resource, strings.TrimSuffix(stem, "Run")
	}
	per, known := map[string]string{"": "", "Per": "", "PerUser": " per user", "PU": " per user", "PerAccount": " per account", "PA": " per account",
		"PerJob": " per job", "PJ": " per job", "PerNode": " per node", "PN": " per node"}[scope]
	switch {
	case !known:
		return "", false
	case kind == "Min":
		return "it asks for fewer " + resource + " than " + owner + " requires" + per, true
	case per == " per job" || per == " per node":
		return "it asks for more " + amount + " than " + owner + " allows" + per, true
	}
	return "the limit of " + owner + " on " + amount + per + " is reached", true
}
