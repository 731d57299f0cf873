package gpuscheduler

const usage = `usage: gpu-scheduler [--state-file PATH] COMMAND [OPTIONS]

Run the Python scripts of a jobs file on this machine's GPUs, by priority. The
file is watched: you can add lines at any time.

commands:
  start            run the scheduler in the foreground until Ctrl-C
  add SCRIPT       append a job to the jobs file
  status           show the GPUs, running and queued jobs (--json)
  pause ID         start no new jobs on a GPU; running ones continue
  resume ID        use it again
  screens          list the screen sessions of running jobs (--json)

options of start:
  --gpus NUM                 use GPUs 0 to NUM-1 (default: all)
  --jobs-file PATH           the jobs file (default jobs.txt; "": none)
  --llm-config PATH          GPU needs of models (default llm_config.json)
  --state-file PATH          default gpu_scheduler_state.json; every command
                             takes it, also before the command
  --screen                   run each job in a GNU Screen session
  --mem-threshold FLOAT      use GPUs with less than this share of their
                             memory in use (0 to 1; default 0.8)
  --load-threshold FLOAT     use GPUs with less load (default 0.8)
  --monitor-interval SEC     read the jobs file at least this often (default 30)
  --state-interval SEC       save and read the state file at least this often
                             (default 20)
  --max-assign-attempts N    attempts to start a job (default 5)
  --assign-retry-wait SEC    wait before the second attempt; it doubles for
                             each further one, up to 30 (default 5)
  --sim N                    use N simulated GPUs (also BERTH_SIM=N)

options of add:
  --conda ENV  --args "ARGUMENTS"  --priority N (default 0)  --gpus "0,1"
  --output-file PATH (default jobs.txt; "-": standard output)

the jobs file, one job per line:
  priority,script_path,conda_env,arguments,allowed_gpus
  Lower numbers go first, equal ones in the order of the file. # starts a
  comment. An empty conda_env means the base environment. allowed_gpus is 0-3 or
  4,5,6, or empty for any. "--llm NAME" in the arguments looks up in
  llm_config.json what share of a GPU, or how many, the job needs. --cuda is set
  to the job's GPUs, and so is CUDA_VISIBLE_DEVICES.

A job is identified by its script, arguments and environment. A job that is
queued, running or has succeeded is not queued again, even after a restart. A
failed job runs again if its line is added once more, or removed and put back
while the scheduler is running, but never by itself. A job that could not be
started is retried as above.

The state file shows GPUs and jobs. Add a GPU id to its list paused_gpus to
pause that GPU; remove it to resume. If you delete the file while the scheduler
is running, it is written again and nothing is paused. If you delete it before a
start, earlier jobs are forgotten too, except those still running.

Ctrl-C stops running jobs; they run again at the next start. In screen mode they
continue, and the next start finds them. If the scheduler is killed, jobs
continue in either mode. The queue is kept in PATH.d beside the state file.

Logs: gpu_scheduler.log in the current directory, and each job's output in
/tmp/gpu_scheduler_logs/job_<job_id>_<timestamp>.log.

Exit status: 0 done; 1 failed or refused; 2 bad usage; 130 start was stopped.

example:
  gpu-scheduler add train.py --conda myenv --args "--llm qwen2.5-7b-inst"
  gpu-scheduler start --gpus 8
`
