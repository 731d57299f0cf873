package gpuscheduler

const usage = `usage: gpu-scheduler [--state-file PATH] COMMAND [OPTIONS]

Run the Python scripts of a jobs file on the GPUs of this machine, as room
allows, by priority. The file is watched: lines may be added at any time.

commands:
  start            run the scheduler in the foreground until Ctrl-C
  add SCRIPT       append a job to the jobs file
  status           the GPUs, what runs and what waits (--json)
  pause ID         start nothing more on a GPU; what runs there goes on
  resume ID        use it again
  screens          list the screen sessions of running jobs (--json)

options of start:
  --gpus NUM                 use GPUs 0 to NUM-1 (default: all there are)
  --jobs-file PATH           the jobs file (default jobs.txt; "": none)
  --llm-config PATH          what models need (default llm_config.json)
  --state-file PATH          default gpu_scheduler_state.json; every command
                             takes it, also before the command
  --screen                   run each job in a GNU Screen session
  --mem-threshold FLOAT      use no GPU with more of its memory in use
                             (above 0, up to 1; default 0.8)
  --load-threshold FLOAT     use no GPU under more load (default 0.8)
  --monitor-interval SEC     read the jobs file at least so often (default 30)
  --state-interval SEC       save and read the state file at least so often
                             (default 20)
  --max-assign-attempts N    try to start a job so often (default 5)
  --assign-retry-wait SEC    wait before the second try, twice as long before
                             each further one, 30 at most (default 5)
  --sim N                    simulated GPUs (also BERTH_SIM=N)

options of add:
  --conda ENV  --args "ARGUMENTS"  --priority N (default 0)  --gpus "0,1"
  --output-file PATH (default jobs.txt; "-": standard output)

the jobs file, one job to a line:
  priority,script_path,conda_env,arguments,allowed_gpus
  Lower numbers go first, equal ones in the order of the file. # starts a
  comment. conda_env empty: the base environment. allowed_gpus: 0-3 or 4,5,6
  or empty for any. "--llm NAME" in the arguments looks up in llm_config.json
  how much of a GPU, or how many, a job needs. --cuda is set to the GPUs that
  it was given, and so is CUDA_VISIBLE_DEVICES.

A job is known by its script, arguments and environment. What is queued, runs
or has succeeded is not queued again, also after a restart. A line whose job
failed is run again when it is added once more, or taken out and put back
while the scheduler runs; never by itself. What could not even be started is
tried again as above.

The state file shows GPUs and jobs. GPU numbers written into its list
paused_gpus are paused, those taken out resumed. Deleted while the scheduler
runs, it is written anew and nothing is paused; deleted before a start, what
ran before is forgotten too, except jobs that still run.

Ctrl-C ends running jobs; they run again with the next start. In screen mode
they go on, and the next start finds them. If the scheduler is killed, jobs go
on in both. The queue itself is kept in PATH.d beside the state file.

Logs: gpu_scheduler.log here, and each job's output in
/tmp/gpu_scheduler_logs/job_<job_id>_<timestamp>.log.

Exit status: 0 done; 1 failed or refused; 2 bad usage; 130 start was stopped.

example:
  gpu-scheduler add train.py --conda myenv --args "--llm qwen2.5-7b-inst"
  gpu-scheduler start --gpus 8
`
