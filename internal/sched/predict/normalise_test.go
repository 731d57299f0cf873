package predict

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCommandsThatAreOne(t *testing.T) {
	for name, commands := range map[string][]string{
		"a sweep differs in its numbers": {
			"python train.py --model resnet50 --lr 0.1 --seed 3",
			"python train.py --model resnet50 --lr 0.01 --seed 4",
			"python  train.py\t--model 'resnet50' --lr \"3e-4\" --seed 17 ",
			"python train.py --model resnet50 --lr .5 --seed -1",
			"python train.py --model resnet50 --lr 1e-4 --seed 0x1f",
			"python train.py --model resnet50 --lr 3e4 --seed 5",
		},
		"a run's own directory is not the program": {
			"python /home/ann/exp/2026-11-15/run7/train.py",
			"python /home/ann/exp/2026-11-16/run12/train.py",
			"python train.py",
			"python ./train.py",
			"python ../train.py",
			"python ~/train.py",
		},
		"what is above two directories is the machine's business": {
			"python /home/ann/project/src/train.py", "python /mnt/old/ann/project/src/train.py", "python project/src/train.py",
		},
		"numbers in names":      {"./sim run_17 seed42 lr=3e-4", "./sim run_3 seed1 lr=0.1"},
		"versions in names":     {"./sim lr0.1_v2", "./sim lr1_v1.3.7"},
		"scripts after --model": {"run --model train_1.py", "run --model train_2.py"},
		"checkpoints as models": {"t.py --model runs/x/17/best", "t.py --model runs/x/18/best"},
		"dates":                 {"eval --since 2026-11-15", "eval --since 2025-01-02"},
		"moments":               {"eval --since 2026-11-15T10:30:00Z", "eval --since 2025-01-02T00:00:59Z"},
		"uuids": {
			"resume 550e8400-e29b-41d4-a716-446655440000", "resume deadbeef-face-cafe-babe-deadbeefdead", "resume 17",
		},
		"hashes":                       {"resume --commit 9fceb02", "resume --commit 1d229271928d3f9e2bb0375bd6ce5db6c6d348d9"},
		"identities":                   {"resume 3k9x2lq1", "resume a1b2c3z9"},
		"lists of numbers":             {"fit --layers 64,64", "fit --layers 128,64,32"},
		"lists in brackets":            {"fit layers=[64,64]", "fit layers=[8]"},
		"which cards":                  {"CUDA_VISIBLE_DEVICES=0,1 ./fit --gpu cuda:0", "CUDA_VISIBLE_DEVICES=3 ./fit --gpu 1"},
		"which port":                   {"torchrun --master_port=29500 t.py", "torchrun --master_port=1234 t.py"},
		"what the run is called":       {"t.py --run-name brave-otter --out runs/a", "t.py --run-name calm-lion --out /data/b"},
		"the same for assignments":     {"t.py name=brave WANDB_NAME=x", "t.py name=calm WANDB_NAME=y"},
		"signs":                        {"fit --offset -5", "fit --offset 5", "fit --offset -.5"},
		"an array's task":              {"./task.sh 12 > out.12.log", "./task.sh 7 > out.7.log"},
		"versions of python":           {"python3.11 t.py", "python3.9 t.py"},
		"line continuations of a file": {"python t.py \\\n --lr 1", "python t.py --lr 2"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range commands {
				if got, want := Normalise(command), Normalise(commands[0]); got != want {
					t.Errorf("%q comes out as %q, and %q as %q", command, got, commands[0], want)
				}
			}
		})
	}
}

func TestCommandsThatAreNot(t *testing.T) {
	long := strings.Repeat("word ", 1000)
	for name, commands := range map[string][2]string{
		"another script":           {"python train.py", "python eval.py"},
		"another subcommand":       {"tool fit --lr 1", "tool score --lr 1"},
		"another model":            {"t.py --model resnet50", "t.py --model vit"},
		"another size of model":    {"t.py --model resnet50", "t.py --model resnet18"},
		"a model after an equals":  {"t.py --model=resnet50", "t.py --model=resnet18"},
		"a model of a configurer":  {"t.py model=llama-7b", "t.py model=llama-70b"},
		"a model with an owner":    {"t.py --model meta/l-7b", "t.py --model meta/l-70b"},
		"another project":          {"python a/train.py", "python b/train.py"},
		"another flag":             {"t.py --amp", "t.py --compile"},
		"a flag after --out":       {"t.py --out --amp", "t.py --out --compile"},
		"another word as a value":  {"t.py --optimizer adam", "t.py --optimizer sgd"},
		"a script after --gpu":     {"run --gpu train2.py", "run --gpu eval2.py"},
		"long ones, by their end":  {long + "a", long + "b"},
		"long ones, by one word":   {strings.Repeat("a", 1000) + "x", strings.Repeat("a", 1000) + "y"},
		"nothing is not something": {"", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if a, b := Normalise(commands[0]), Normalise(commands[1]); a == b {
				t.Errorf("%.80q and %.80q both come out as %q", commands[0], commands[1], a)
			}
		})
	}
}

func TestNormalisedCommandsAreReadable(t *testing.T) {
	for command, want := range map[string]string{
		"python train.py --model resnet50 --lr 0.1 --seed 3":                   "python train.py --model resnet50 --lr # --seed #",
		"bash -c 'cd /home/ann/p/q && python3 run_17.py --out /tmp/x'":         "bash -c cd ann/p/q && python# run_#.py --out #",
		"OMP_NUM_THREADS=4 ./a.out -n 100 -I/usr/include/x --data=/d/e/f/g.h5": "OMP_NUM_THREADS=# a.out -n # -/usr/include/x --data=e/f/g.h#",
	} {
		if got := Normalise(command); got != want {
			t.Errorf("%q comes out as %q, want %q", command, got, want)
		}
	}
}

// commands makes commands out of the pieces that the rules are about, so that
// they meet in every order: mostly whole tokens with a flag before them.
func commands() *rapid.Generator[string] {
	before := rapid.SampledFrom([]string{"--seed ", "--gpu ", "--out ", "--model ", "-x ", "seed=", "--name=", "model=", "a=", "", "", " "})
	begin := rapid.SampledFrom([]string{"", "", "-", "--", "-.", "/", "./", "~/", "/1/", "-I/", "=", ".", "'"})
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"/", "=", "-", ".", "..", "~", "_", ":", ",", "e-", "E+", "#", "0x", "\\", "%", "é", "\xff", "/-",
			"seed", "name", "model", "out", "train.py", "a", "abc", "deadbeef", "face", "xyz", "/1/", "/a/b/",
			"3", "17", "1f", "0.5", "3e-4", "9fceb02", "3k9x2lq1", "deadbeef-face-cafe-babe-deadbeefdead",
		}),
		rapid.StringMatching(`[a-g0-3#]{1,9}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		var command strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "tokens") {
			command.WriteString(before.Draw(t, "before") + begin.Draw(t, "begin"))
			command.WriteString(strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), ""))
			command.WriteString(rapid.SampledFrom([]string{" ", " ", "\n", ""}).Draw(t, "end"))
		}
		return command.String()
	})
}

func checkNormal(t interface{ Errorf(string, ...any) }, command string) {
	once := Normalise(command)
	if twice := Normalise(once); twice != once {
		t.Errorf("%q comes out as %q, and that as %q", command, once, twice)
	}
	if len(once) > mostCommand {
		t.Errorf("%d bytes come out as %d, at most %d are allowed", len(command), len(once), mostCommand)
	}
}

func TestNormalisingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		command := commands().Draw(t, "command")
		checkNormal(t, command)
		checkNormal(t, strings.Repeat(command+" ", rapid.SampledFrom([]int{1, 8, 64}).Draw(t, "times")))
	})
}

func FuzzNormalise(f *testing.F) {
	for _, command := range []string{
		"", "python train.py --seed 3", "--out -I/5/out x", "/1/out=abc", "/1/out=abc/w", "--name -abcdef1-x", "--name -deadbeef-face-cafe-babe-deadbeefdead-x", "1e2e-3", "lr3e-4e-5", "/1/--seed 4x", "3e-4e-4", "3e-deadbeef1", "abc3-4bcdef",
		"a=/1/model=resnet50", "--model x/y/z --gpu", "\x00\xff'\"\\", strings.Repeat("--name ", 200),
	} {
		f.Add(command)
	}
	f.Fuzz(func(t *testing.T, command string) {
		checkNormal(t, command)
		if other := command + " "; Normalise(other) != Normalise(command) {
			t.Errorf("%q changes with a space behind it", command)
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	command := "CUDA_VISIBLE_DEVICES=0 python /home/ann/exp/2026-11-15/run7/train.py --model resnet50 --lr 3e-4 --batch-size 64 --seed 17 --out /data/runs/17"
	b.SetBytes(int64(len(command)))
	for b.Loop() {
		Normalise(command)
	}
}
