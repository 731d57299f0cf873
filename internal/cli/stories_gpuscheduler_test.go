package cli_test

func init() { promises = append(promises, gpuSchedulerPromises...) }

// gpuSchedulerPromises is the part of the index that is about gpu-scheduler.
var gpuSchedulerPromises = []promise{
	{"gpu-scheduler start runs the lines of its jobs file, and lines that are added", "gs-start-runs-the-lines-of-the-jobs-file"},
	{"lower priorities go first, equal ones in the order of the file", "gs-lower-priorities-go-first-and-equal-ones-in-file-order"},
	{"llm_config.json says how much of a GPU, or how many, a job takes", "gs-models-take-shares-or-several-gpus"},
	{"what waits, runs or succeeded is not queued again; what failed only when asked", "gs-what-succeeded-is-not-run-again-and-what-failed-only-when-asked"},
	{"a start that fails is repeated, a bounded number of times, with growing waits", "gs-what-cannot-be-started-is-tried-again-a-few-times"},
	{"pause, resume, and the list of paused GPUs in the state file", "gs-pause-and-resume-keep-jobs-off-a-gpu"},
	{"Ctrl-C ends the scheduler and its jobs at once; they run again", "gs-ctrl-c-stops-at-once-and-jobs-run-again"},
	{"a scheduler that was killed leaves its jobs to the next, which starts none twice", "gs-a-killed-scheduler-leaves-jobs-to-the-next"},
	{"a GPU beyond its thresholds takes no job", "gs-gpus-that-others-use-are-left-alone-beyond-the-thresholds"},
	{"gpu-scheduler tells its usage and names mistakes", "gs-usage-is-told-and-mistakes-are-named"},
}
