package jobfile

import (
	"fmt"
	"strings"
	"testing"

	"berth/internal/job"
)

// said writes pairs as a person would.
func said(pairs []Pair) string {
	var words []string
	for _, pair := range pairs {
		words = append(words, pair.Key+"="+pair.Value)
	}
	return strings.Join(words, " | ")
}

func ignored(list []Directive) string {
	var words []string
	for _, d := range list {
		words = append(words, fmt.Sprintf("%d:%s", d.Line, d.Text))
	}
	return strings.Join(words, " | ")
}

func TestScripts(t *testing.T) {
	for _, row := range []struct {
		sentence      string
		text          string
		want, without string
	}{
		{"a script without directives asks for nothing", "#!/bin/sh\necho hi\n", "", ""},
		{"a flag and its value", "#!/bin/sh\n#BERTH --gpus 2\n#BERTH --vram=18G\necho\n", "gpus=2 | vram=18G", ""},
		{"several on a line, short ones too", "#BERTH -n train -g2 -c=4 -p -5 -t 1:30 -C /d -e A=1=2 -o %j.log\n",
			"name=train | gpus=2 | cpus=4 | priority=-5 | timeout=1:30 | dir=/d | env.A=1=2 | output=%j.log", ""},
		{"flags have the one name of their key", "#BERTH --gpu-ids 1,3 --gpu-type H100 --time 2h --chdir /d --env B=2 --on-timeout requeue\n",
			"ids=1,3 | type=H100 | timeout=2h | dir=/d | env.B=2 | on_timeout=requeue", ""},
		{"flags that stand alone", "#BERTH --exclusive --hold --pty --dedup --requeue --preemptible --name x\n",
			"exclusive=true | hold=true | pty=true | dedup=true | requeue=true | preemptible=park | name=x", ""},
		{"flags that stand alone take a value after =", "#BERTH --preemptible=requeue --exclusive=no\n", "preemptible=requeue | exclusive=no", ""},
		{"quotes are a shell's", "#BERTH --setup \"source \\\"x\\\" \\n\" --name 'a #b' --venv a\\ b --dir \"\"x'y'\n",
			`setup=source "x" \n | name=a #b | venv=a b | dir=xy`, ""},
		{"a comment may follow", "#BERTH --gpus 2 # two\n#BERTH # nothing\n#BERTH\n#BERTH --name a#b\n", "gpus=2 | name=a#b", ""},
		{"what only a submission can say", "#BERTH --after 12:ok,13:any,@~1 --array 0-9%2 --begin now+2h\n", "after=12:ok,13:any,@~1 | array=0-9%2 | begin=now+2h", ""},
		{"directives end where the script begins", "\n# a\n\n#BERTH --gpus 2\n  # b\nset -e\n#BERTH --gpus 3\n", "gpus=2", ""},
		{"what is not quite a directive is a comment", "# BERTH --gpus 2\n##BERTH --gpus 2\n#BERTHA --gpus 2\n #BERTH --gpus 2\n#berth x\n#SBATCHX\n", "", ""},
		{"Windows line ends and a byte order mark are tolerated", "\xef\xbb\xbf#BERTH --gpus 2\r\n#SBATCH --time=1\r\nx\r\n", "timeout=60s | gpus=2", ""},

		{"Slurm's time is minutes", "#SBATCH --time=90\n", "timeout=5400s", ""},
		{"Slurm's time with seconds", "#SBATCH -t 1:30\n", "timeout=90s", ""},
		{"Slurm's time with hours", "#SBATCH -t1:30:00\n", "timeout=5400s", ""},
		{"Slurm's time in days and hours", "#SBATCH --time 2-3\n", "timeout=183600s", ""},
		{"Slurm's time in days, hours and minutes", "#SBATCH --time=1-0:30\n", "timeout=88200s", ""},
		{"Slurm's time in all its parts", "#SBATCH --time=1-01:01:01\n", "timeout=90061s", ""},
		{"Slurm's no limit means no limit", "#SBATCH --time=5\n#SBATCH --time=UNLIMITED\n#SBATCH --time=0\n", "", ""},
		{"names and places", "#SBATCH --job-name=train -D /d\n#SBATCH -J last\n", "dir=/d | name=last", ""},
		{"GPUs as a resource", "#SBATCH --gres=gpu:2\n", "gpus=2", ""},
		{"GPUs of a type", "#SBATCH --gres=gpu:a100:2\n", "gpus=2 | type=a100", ""},
		{"a GPU of a type", "#SBATCH --gres=gpu:a100\n", "gpus=1 | type=a100", ""},
		{"a GPU", "#SBATCH --gres gpu\n", "gpus=1", ""},
		{"no GPU", "#SBATCH --gres=gpu:0\n", "gpus=0", ""},
		{"GPUs beside another resource", "#SBATCH --gres=gpu:1,nvme:100,mps:50\n", "gpus=1", "1:--gres=nvme:100,mps:50"},
		{"a resource that is no GPU", "#SBATCH --gres=nvme:100\n", "", "1:--gres=nvme:100"},
		{"GPUs by their own options", "#SBATCH --gpus=h100:4\n#SBATCH -G 3\n#SBATCH --gpus-per-node=2\n", "gpus=3 | gpus=2", ""},
		{"GPUs per task of one task", "#SBATCH --ntasks=1 --gpus-per-task=2 --cpus-per-task 8 --nodes=1\n", "gpus=2 | cpus=8", ""},
		{"several tasks, each with CPUs and GPUs", "#SBATCH -n 4 --gpus-per-task=a100:2 -c 3 --mem-per-cpu=100\n", "env.SLURM_NTASKS=4 | gpus=8 | type=a100 | env.SLURM_GPUS_PER_TASK=2 | cpus=12 | env.SLURM_CPUS_PER_TASK=3 | mem=1200 | env.SLURM_MEM_PER_CPU=100", ""},
		{"several tasks have a CPU each", "#SBATCH --ntasks-per-node=2 --mem-per-cpu=100\n", "env.SLURM_NTASKS=2 | cpus=2 | mem=200 | env.SLURM_MEM_PER_CPU=100", ""},
		{"one task per node, and at least one node", "#SBATCH --ntasks-per-node=1 -N 1-4 -c 2\n", "cpus=2", ""},
		{"memory and CPUs for each GPU", "#SBATCH --mem-per-gpu=2G --cpus-per-gpu=4 --gres=gpu:3\n", "mem=6144 | env.SLURM_MEM_PER_GPU=2048 | cpus=12 | env.SLURM_CPUS_PER_GPU=4 | gpus=3", ""},
		{"memory for each CPU", "#SBATCH --mem-per-cpu=100 -c 4\n", "mem=400 | env.SLURM_MEM_PER_CPU=100 | cpus=4", ""},
		{"memory for the one CPU and GPU of a job", "#SBATCH --mem-per-cpu=100\n#SBATCH --cpus-per-gpu 2\n", "mem=100 | env.SLURM_MEM_PER_CPU=100 | cpus=2 | env.SLURM_CPUS_PER_GPU=2", ""},
		{"memory in Slurm's MB", "#SBATCH --mem=4096\n", "mem=4096", ""},
		{"memory with a unit", "#SBATCH --mem=64G\n", "mem=65536", ""},
		{"memory in KB is rounded up", "#SBATCH --mem=1025K\n", "mem=2", ""},
		{"memory in TB", "#SBATCH --mem=1TB\n", "mem=1048576", ""},
		{"all memory is nothing berth can promise", "#SBATCH --mem=0\n", "", "1:--mem=0"},
		{"an array with its limit", "#SBATCH --array=0-99%4\n#SBATCH -o out/%x-%A_%a.log\n", "array=0-99%4 | output=out/%n-%A_%a.log", ""},
		{"an output of a single job", "#SBATCH --output=%x-%A-%u-%j-100%%.log\n", "output=%n-%A-%u-%j-100%%.log", ""},
		{"an array's id alone", "#SBATCH -a 1-3 --output=%A/%a.log\n", "array=1-3 | output=%A/%a.log", ""},
		{"an index may stand alone", "#SBATCH -a 1-3 --output=%a.log\n", "array=1-3 | output=%a.log", ""},
		{"the machine and the task in a name", "#SBATCH --output=%N-%t.log\n", "output=%N-0.log", ""},
		{"what else Slurm puts into names", "#SBATCH --output=%s.log\n", "", "1:--output=%s.log"},
		{"a padded number", "#SBATCH --output=%4j.log\n", "", "1:--output=%4j.log"},
		{"errors to the same file are no other wish", "#SBATCH -o a.log -e a.log\n", "output=a.log", ""},
		{"errors to another file", "#SBATCH -o a.log\n#SBATCH --error=b.log\n", "output=a.log | setup=exec 2>b.log", ""},
		{"errors to another file, and a set-up", "#SBATCH -e b.log\n#BERTH --setup 'module load cuda'\n", "setup=exec 2>b.log | setup=exec 2>b.log || exit\nmodule load cuda", ""},
		{"all attempts in one file", "#SBATCH -o a.log -e it%%s-%x-%A_%a.err --open-mode=append\n", `output=a.log%+ | setup=exec 2>>it%s-"$BERTH_JOB_NAME"-"${BERTH_JOB_ID%_*}"_"$BERTH_ARRAY_INDEX".err`, ""},
		{"a beginning and a hold", "#SBATCH --begin=now+1hour -H\n#SBATCH --requeue\n", "begin=now+1hour | hold=yes | requeue=yes", ""},
		{"mail", "#SBATCH --mail-type=END,FAIL\n#SBATCH --mail-user=ann@example.org\n", "notify=end,fail:mailto:ann@example.org", ""},
		{"mail about everything", "#SBATCH --mail-user ann@example.org --mail-type all\n", "notify=start,end,fail:mailto:ann@example.org", ""},
		{"no mail", "#SBATCH --mail-type=NONE\n", "notify=none", ""},
		{"mail without an address", "#SBATCH --mail-type=END\n", "", "1:--mail-type=END"},
		{"mail that berth does not send", "#SBATCH --mail-type=STAGE_OUT --mail-user=a@b.c\n", "", "1:--mail-type=STAGE_OUT | 1:--mail-user=a@b.c"},
		{"no requeue", "#SBATCH --requeue --no-requeue\n", "requeue=yes | requeue=no | slurm=--no-requeue", ""},
		{"dependencies", "#SBATCH -d afterok:12:13_4,afterany:14\n#SBATCH --dependency=afternotok:15,afterok:16\n", "after=15:fail,16:ok", ""},
		{"dependencies on starts, tasks and names", "#SBATCH -d after:12:13+5,aftercorr:14,singleton\n", "after=12:start,13:start+5m,14_%a:ok,@name:any", ""},
		{"either of two dependencies", "#SBATCH --dependency=afterok:12:13?afternotok:14\n", "after=12:ok|13:ok|14:fail", ""},
		{"all of the environment, and more", "#SBATCH --export=ALL,A=1,B=x=y\n", "env.A=1 | env.B=x=y | export=all", ""},
		{"some of the environment", "#SBATCH --export=HOME,PATH,A=1\n", "env.A=1 | export=HOME,PATH", ""},
		{"only what is set", "#SBATCH --export=A=1\n", "env.A=1 | export=none", ""},
		{"none of the environment", "#SBATCH --export=NONE\n", "export=none", ""},
		{"an environment berth does not know", "#SBATCH --export=NIL\n", "", "1:--export=NIL"},
		{"an environment of no names", "#SBATCH --export=ALL,=1\n", "", "1:--export=ALL,=1"},
		{"a warning signal", "#SBATCH --signal=B:USR1@120\n", "signal=USR1@120", ""},
		{"a warning signal to save at", "#SBATCH --requeue --signal=USR1@120\n", "requeue=yes | signal=USR1@120 | preemptible=requeue | checkpoint=term", ""},
		{"a warning signal, and no requeue", "#SBATCH --requeue --no-requeue --signal=USR1\n", "requeue=yes | requeue=no | slurm=--no-requeue | signal=USR1", ""},
		{"a warning signal by number", "#SBATCH --signal=10\n", "signal=USR1", ""},
		{"what a cluster has and a machine has not", "#SBATCH --partition=gpu --account ann\n#SBATCH -p gpu -q high --exclusive --mail-type=END --nice=5\n#SBATCH --hold=x stray -Q\n", "",
			"1:--partition=gpu | 1:--account ann | 2:-p gpu | 2:-q high | 2:--exclusive | 2:--mail-type=END | 2:--nice=5 | 3:--hold=x | 3:stray | 3:-Q"},
		{"an empty word", "#SBATCH '' --gpus=1\n", "gpus=1", "1:''"},
		{"berth's own lines come last and win", "#BERTH --time 5m --gpus 1\n#SBATCH --time=90 --gpus=2\n", "timeout=5400s | gpus=2 | timeout=5m | gpus=1", ""},
		{"the cards a berth line names are how many", "#BERTH --gpu-ids 1,3\n#SBATCH --gpus=h100:4\n", "type=h100 | ids=1,3", ""},
	} {
		t.Run(row.sentence, func(t *testing.T) {
			script, err := ParseScript("job.sh", []byte(row.text))
			if err != nil {
				t.Fatal(err)
			}
			pairs := script.Pairs
			if strings.Contains("\n"+row.text, "\n#SBATCH ") {
				if !strings.HasPrefix(said(pairs), "name=job.sh | slurm_env=yes") {
					t.Fatalf("asks for %s, want the script's name and SLURM_ variables", said(pairs))
				}
				pairs = pairs[2:]
			}
			if got := said(pairs); got != row.want {
				t.Errorf("asks for %s, want %s", got, row.want)
			}
			if got := ignored(script.Ignored); got != row.without {
				t.Errorf("ignores %s, want %s", got, row.without)
			}
			if _, err := Ask(script.Pairs, noon, job.Defaults(), 1000); err != nil {
				t.Errorf("what was read is refused: %v", err)
			}
		})
	}
}

// TestAKeyThatStandsAloneSaysWhatItMeans, in directives as in the grammar.
func TestAKeyThatStandsAloneSaysWhatItMeans(t *testing.T) {
	script, err := ParseScript("job.sh", []byte("#SBATCH --hold --requeue\n#BERTH --exclusive --preemptible --pty --dedup\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Ask(script.Pairs, noon, job.Defaults(), 1)
	if err != nil || !got.Hold || !got.Spec.Requeue || !got.Spec.Exclusive || got.Spec.Preemptible != "park" || !got.Spec.Pty || !got.Dedup {
		t.Errorf("%+v, %v", got, err)
	}
}

// brokenScripts is one script per mistake, in the order of the golden
// messages.
var brokenScripts = []struct{ sentence, text string }{
	{"an unknown flag, with the nearest", "#!/bin/sh\n#BERTH --vrma 1G\n"},
	{"GPUs of two types at once", "#SBATCH --gres=gpu:a:1,gpu:b:1\n#SBATCH -G a:1,b:1\n"},
	{"GPUs per task of several", "#SBATCH -n 4 --gpus-per-task=2 -c8\n#SBATCH -N 2\n"},
	{"a beginning berth does not know", "#SBATCH --begin=teatime\n"},
	{"dependencies berth does not know", "#SBATCH --dependency=afterok:12,expand:13\n"},
	{"a dependency on nothing", "#SBATCH --dependency=afterok\n"},
	{"either and both of dependencies", "#SBATCH --dependency=afterok:12?afterok:13,afterok:14\n"},
	{"a delay after an end", "#SBATCH --dependency=afterok:12+5\n"},
	{"a signal that cannot be caught", "#SBATCH --signal=KILL@60\n#SBATCH --signal=R:USR1\n"},
	{"the parts of another job", "#SBATCH --gpus=1\n#SBATCH hetjob\n#SBATCH --gpus=2\n"},
	{"an unknown short flag", "#BERTH -x 1\n"},
	{"cancel, which is a jobs file's", "#BERTH --cancel\n"},
	{"a variable as a flag of its own", "#BERTH --env.A=1\n"},
	{"a flag without its value", "#BERTH --gpus\n"},
	{"a flag with an empty value", "#BERTH --name=\n"},
	{"a switch with an empty value", "#BERTH --hold=\n"},
	{"not a flag", "#BERTH --preemptible park\n"},
	{"dashes alone", "#BERTH -- echo\n"},
	{"a value that is wrong", "#BERTH --vram 12Q --gpus 1\n"},
	{"two values that are wrong", "#BERTH --vram 12Q -t soon\n#BERTH --array x\n"},
	{"a variable without its value", "#BERTH -e A\n"},
	{"a quote that does not close", "#BERTH --name 'a\n"},
	{"a backslash at the end", "#BERTH --gpus 2 \\\n"},
	{"a NUL byte", "#BERTH --name a\x00b\n"},
	{"bytes that are no text", "#BERTH --name \xff\n"},
	{"an invalid Slurm time", "#SBATCH --time=soon\n"},
	{"Slurm's time with too many parts", "#SBATCH --time=1:2:3:4\n"},
	{"an invalid Slurm memory", "#SBATCH --mem=1.5G\n"},
	{"Slurm memory in an unknown unit", "#SBATCH --mem=5GG\n"},
	{"an invalid Slurm count", "#SBATCH --cpus-per-task=x\n"},
	{"an invalid Slurm GPUs", "#SBATCH --gpus=many\n"},
	{"an invalid Slurm array", "#SBATCH --array=x\n"},
	{"Slurm's option without its value", "#SBATCH --time\n"},
	{"an invalid Slurm name", "#SBATCH --job-name=\"\"\n"},
	{"mistakes of both kinds, in the order of their lines", "#SBATCH --time=x\n#BERTH --vram x\n#SBATCH --mem=x\n"},
	{"a directive too long", "#BERTH --name " + strings.Repeat("x", maxDirectiveBytes)},
	{"directives without number", strings.Repeat("#BERTH --gpus 1\n", maxDirectives+1)},
}

func TestMistakesInScripts(t *testing.T) {
	var got strings.Builder
	for _, row := range brokenScripts {
		script, err := ParseScript("job.sh", []byte(row.text))
		if err == nil || script.Pairs != nil {
			t.Errorf("%s: accepted as %v", row.sentence, script)
			continue
		}
		fmt.Fprintf(&got, "# %s\n%v\n\n", row.sentence, err)
	}
	compareGolden(t, "scripts.golden", got.String())
}

// TestTheRestOfAScriptIsNotRead: it may be anything, and of any length.
func TestTheRestOfAScriptIsNotRead(t *testing.T) {
	text := "#BERTH --gpus 2\necho\n" + strings.Repeat("\x00\xff#BERTH --nonsense\n", 1<<16)
	script, err := ParseScript("job.sh", []byte(text))
	if err != nil || said(script.Pairs) != "gpus=2" {
		t.Errorf("%v %v", script, err)
	}
}
