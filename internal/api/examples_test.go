package api

import (
	"encoding/json"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// The examples of the API description. They are values of the types themselves,
// so that they cannot drift.

var exampleTime = time.Date(2026, 3, 1, 14, 2, 9, 0, time.UTC)

var exampleView = job.View{
	ID: "17", Name: "train", User: "ann", State: job.Running, Command: pointer("python train.py"),
	GPUs: 2, VRAMMiB: pointer[int64](18432), GPUIDs: []int{0, 1}, Attempt: 1,
	SubmittedAt: pointer(exampleTime), StartedAt: pointer(exampleTime.Add(time.Second)),
	PeakVRAMMiB: map[string]int64{"0": 17910, "1": 17904}, AvgUtil: pointer(96.0), ChargedGPUs: pointer(2.0),
	Log: pointer("/home/ann/.local/state/berth/jobs/17/1.log"),
}

var (
	exampleSubmit = SubmitRequest{
		Jobs: []Spec{
			{Command: Command{Argv: []string{"python", "train.py"}}, Name: "train", GPUs: "2", VRAM: "18G", Snapshot: "/home/ann/project"},
			{Command: Command{Shell: "make eval > eval.txt"}, GPUs: "0", After: "@"},
		},
		Dir:       "/home/ann/project",
		Environ:   []string{"PATH=/usr/bin:/bin", "HOME=/home/ann"},
		Snapshots: []job.Snapshot{exampleCode},
	}
	exampleCode = job.Snapshot{Tree: "/home/ann/project", ID: "3f2a9c0d4b5e6f708192a3b4c5d6e7f8",
		Path:   "/home/ann/.local/state/berth/snapshots/3f2a9c0d4b5e6f708192a3b4c5d6e7f8/project",
		Commit: "9fd0e89b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f", Dirty: true}
	exampleSnapshotIDs = SnapshotIDs{IDs: []string{exampleCode.ID}}
	exampleSubmitted   = SubmitReply{Jobs: []Submitted{{ID: "17", Name: "train"}, {ID: "18", Name: "job18"}}}

	examplePage = JobPage{Jobs: []job.View{exampleView}, Total: 1,
		Counts: map[string]int{"queued": 3, "running": 1, "finished": 12}}
	exampleBatches = []BatchSum{{File: "/home/ann/project/jobs.txt", User: "ann", Tasks: Tasks{
		Counts: map[string]int{"queued": 40, "running": 3, "finished": 56, "failed": 1}, Reason: "needs a GPU of its own; all are in use", DoneAt: pointer(exampleTime.Add(2 * time.Hour))}}}
	exampleSweep = SweepSum{ID: "17", Name: "lr{lr}-s{seed}", User: "ann", Params: []string{"lr", "seed"}, SubmittedAt: pointer(exampleTime),
		Tasks: Tasks{Counts: map[string]int{"running": 1, "finished": 9}, Command: "python train.py --lr {lr} --seed {seed}"}}
	exampleTrials = TrialTable{ID: "17", Name: "lr{lr}-s{seed}", User: "ann", Params: []string{"lr", "seed"},
		Metrics: []MetricColumn{{Name: "val_acc", Best: "max", From: "max:val_acc"}}, Tasks: exampleSweep.Tasks,
		Trials: []TrialRow{{ID: "17_0", Name: "lr1e-3-s0", State: job.Finished, Outcome: pointer(job.OK), Params: map[string]string{"lr": "1e-3", "seed": "0"},
			StartedAt: pointer(exampleTime), Seconds: pointer(812.5), PeakVRAMMiB: pointer[int64](9120), Attempt: 1, Metrics: map[string]any{"val_acc": 0.93}}}}
	exampleAdded = AddedTrials{ID: "17", Trials: []TrialWords{{ID: "17_10", Name: "lr1e-5-s0", Command: "python train.py --lr 1e-5 --seed 0",
		Params: []job.Param{{Name: "lr", Value: "1e-5"}, {Name: "seed", Value: "0"}}}}}
	exampleDetail = Detail{View: exampleView, Dir: "/home/ann/project", TimeLimitS: 7200,
		Settings: map[string]string{"priority": "5"}, UUIDs: []string{"GPU-a1", "GPU-b2"}, BudgetMiB: 18432, Snapshot: &exampleCode,
		Events:      []Event{{Seq: 41, Time: exampleTime, Kind: job.EventQueued}},
		ExpectedRun: exampleRun, ExpectedVRAM: exampleVRAM}
	exampleRun  = &RunGuess{LowS: 2400, MidS: 3000, HighS: 4200, Source: "command", Runs: 3}
	exampleVRAM = &VRAMGuess{LowMiB: 17200, MidMiB: 17900, HighMiB: 18432, Source: "command", Runs: 3}
	exampleWhy  = Why{State: "queued", Story: exampleStory, ExpectedRun: exampleRun, ExpectedVRAM: exampleVRAM}

	exampleStory = reason.Story{ID: "18", Position: 2, Queued: 3,
		Text: "needs 2 GPUs with 18432 MiB free; best now: gpu1 20000, gpu3 9000; gpu0 is paused",
		Kind: reason.WaitsForGPUs, User: "ann", Needs: "2 GPUs with 18432 MiB each", Since: exampleTime,
		Cards: []reason.CardStory{
			{Card: reason.Card{GPU: 0, Name: "NVIDIA RTX 4090", Obstacle: reason.ObstaclePaused}, What: "paused"},
			{Card: reason.Card{GPU: 3, Name: "NVIDIA RTX 4090", Obstacle: reason.ObstacleFree, FreeMiB: 9000},
				What: "9000 MiB free, 9432 more needed", MissingMiB: 9432,
				Runs: []reason.Run{{Holder: reason.Holder{ID: "17"}, User: "bob", Since: exampleTime, BudgetMiB: 15052, Low: exampleTime.Add(40 * time.Minute),
					Mid: exampleTime.Add(50 * time.Minute), High: exampleTime.Add(70 * time.Minute), By: reason.ByHistory}}}},
		Behind:     &reason.Behind{ID: "12", User: "bob", Priority: 5, First: reason.FirstPriority, Because: "its priority (5) is higher"},
		MaxBypassS: 86400, OldestSince: exampleTime,
		Expected: &reason.Forecast{Now: exampleTime, Low: exampleTime.Add(40 * time.Minute), Mid: exampleTime.Add(100 * time.Minute),
			High: exampleTime.Add(140 * time.Minute), Basis: reason.Basis{Running: 1, InFront: 1, History: 2}}}

	exampleAct    = ActRequest{Action: ActCancel, Select: Select{Words: []string{"17"}}, GraceS: pointer(5.0)}
	exampleActed  = ActReply{Jobs: []Acted{{ID: "17", Done: true, State: "running", What: "stopping"}}}
	exampleEdit   = EditRequest{Set: Spec{Priority: "5", VRAM: "20G"}}
	exampleWait   = WaitRequest{Select: Select{Words: []string{"17"}}, TimeoutS: 30}
	exampleWaited = WaitReply{Done: false, Jobs: []job.View{exampleView}}

	exampleStatus = Status{Version: "1.0.0", PID: 4711, Since: exampleTime, User: "ann",
		StateDir: "/home/ann/.local/state/berth", Source: "NVML", Counts: map[string]int{"queued": 3, "running": 1},
		You:      Caller{UID: 1000, Name: "ann", PID: 4999},
		Enforced: &Enforced{Cgroup: "/sys/fs/cgroup/user.slice/berth", CPUs: "v2", Mem: "v2", Devices: true}}
	exampleGPU = GPU{Index: 0, UUID: "GPU-a1", Name: "NVIDIA RTX 4090", TotalMiB: 24564, UsedMiB: 18300, FreeMiB: 6264,
		BudgetMiB: 18432, Util: pointer(97.0), Health: "ok", ReadAt: exampleTime, BusID: "00000000:3B:00.0", Minor: pointer(0),
		TemperatureC: pointer(64.0), PowerW: pointer(312.5), PowerLimitW: pointer(450.0), SMClockMHz: pointer(2520), MemClockMHz: pointer(10501),
		RecoveryAction: "none", NUMA: pointer(0), CPUs: "0-15", Links: map[string]int{"1": 4},
		Jobs:      []GPUJob{{ID: "17", Name: "train", User: "ann", UsedMiB: pointer[int64](17904), PeakMiB: pointer[int64](17910), Util: pointer(97.0)}},
		Parked:    []GPUJob{{ID: "12", Name: "night", User: "bob", UsedMiB: pointer[int64](20480)}},
		Processes: []GPUProcess{{PID: 4242, User: "ann", Command: "python", UsedMiB: pointer[int64](17904), Job: "17"}}}
	exampleHealth    = HealthRequest{Health: HealthQuarantined, Reason: "fan is loud"}
	exampleCardEvent = CardEvent{At: exampleTime, GPU: pointer(0), Text: "gpu0 quarantined by root: fan is loud"}
	exampleSamples   = Samples{Job: "17", From: exampleTime, To: exampleTime.Add(time.Minute), DeclaredMiB: pointer[int64](18432), Parked: []Stretch{},
		Tracks: []SampleTrack{{GPU: 0, Attempt: 1, Points: []SamplePoint{{At: exampleTime.Add(5 * time.Second), VRAMMiB: pointer[int64](17904), Util: pointer(97.0), PowerW: pointer(312.0), TemperatureC: pointer(64.0), AfterGap: true}}}}}
	exampleGPUSamples = Samples{GPU: pointer(0), From: exampleTime, To: exampleTime.Add(time.Minute), TotalMiB: 24564, Parked: []Stretch{},
		Tracks: []SampleTrack{{GPU: 0, Points: []SamplePoint{{At: exampleTime.Add(5 * time.Second), VRAMMiB: pointer[int64](18300), Util: pointer(97.0), PowerW: pointer(312.0), TemperatureC: pointer(64.0), AfterGap: true}}}}}
	exampleReload   = ReloadRequest{}
	exampleReloaded = Reloaded{Config: "/etc/berth/config.toml", Changed: []string{"limits.gpus"}, Restart: []string{"scheduling.poll"}, Warnings: []string{}}
	exampleDrain    = DrainRequest{Park: true}
	exampleRelease  = ReleaseRequest{ForS: 600}
	exampleReleased = Released{Until: pointer(exampleTime.Add(10 * time.Minute))}
	exampleLine     = StatsLine{Key: "ann", Jobs: 13, Finished: 12, Failed: 1, GPUHours: 31.5, CPUHours: 126,
		WaitMeanS: pointer(12.0), WaitP50S: pointer(2.0), WaitP95S: pointer(61.0), WaitMaxS: pointer(70.0), RunMeanS: pointer(8723.0), AvgUtil: pointer(91.0)}
	exampleStats = Stats{Since: exampleTime.AddDate(0, 0, -7), Until: exampleTime, GPUs: 2, GPUHours: 31.5, CPUHours: 126,
		Util: pointer(0.09), AvgUtil: pointer(91.0), All: exampleLine, Users: []StatsLine{exampleLine}, Days: []StatsLine{exampleLine}}

	exampleGroup = Group{Name: "io", User: "ann", Limit: pointer(2), Running: 2, Queued: 5}

	exampleNotify = Notify{Rules: []string{"end,fail:mailto:ann@example.org"}, Signed: true, Messages: []NotifyMessage{{ID: "k3xw-8", Target: "slack:https://hooks.slack.com/…",
		Title: "[gpubox] train (17) finished", Stage: "waiting", Since: exampleTime, Next: exampleTime.Add(time.Minute), Tries: 1, Error: "the server answered 503"}}}

	exampleTokenRequest   = TokenRequest{Name: "laptop", TTLS: 86400}
	exampleLogin          = Login{Secret: "login_5f3k", Expires: exampleTime.Add(5 * time.Minute), Address: "http://127.0.0.1:7878"}
	exampleLoginRequest   = LoginRequest{}
	exampleSessionRequest = SessionRequest{Secret: exampleLogin.Secret, Key: "BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}
	exampleSession        = Session{ID: "k8", User: "ann", Expires: exampleTime.AddDate(0, 0, 7)}
	exampleRevoked        = Revoked{IDs: []string{"k7"}}

	exampleToken = Token{ID: "k7", Name: "laptop", User: "ann", Expires: exampleTime.AddDate(0, 0, 1), Secret: "berth_3q2-7w"}

	exampleEventText = "id: 42\ndata: {\"seq\":42,\"time\":\"2026-03-01T14:02:10Z\",\"event\":\"started\",\"job\":{\"id\":\"17\", …}}\n\n"
)

func pausedGPU() GPU {
	card := exampleGPU
	card.Paused, card.PausedBy = true, "root"
	return card
}

func exampleDrained() Drained {
	return Drained{GPU: pausedGPU(), Jobs: []Acted{{ID: "17", Done: true, State: "running", What: "is being parked"}}}
}

func quarantinedGPU() GPU {
	card := exampleGPU
	card.Health, card.HealthReason, card.HealthSince, card.HealthBy = HealthQuarantined, "fan is loud", exampleTime, "root"
	return card
}

func withoutSecret(t Token) Token {
	t.Secret = ""
	return t
}

func pointer[T any](value T) *T { return &value }

var exampleAdopt = AdoptRequest{PID: 4242, GPUs: []int{0}, VRAM: "18G", Name: "by-hand"}

var exampleAdopted = Detail{View: exampleView, UUIDs: []string{"GPU-a1", "GPU-b2"}, BudgetMiB: 18432}

var exampleStray = Stray{
	Token: "5f0c2a91d3e84b67", Job: "17", Attempt: 1, State: "running", User: "ann", Name: "train", Command: "python train.py",
	GPUs: []int{0}, PID: 4242, StartedAt: exampleTime, Log: "/var/lib/berth/jobs/17/1.log", Adoptable: true,
}

var exampleReplay = Replay{
	Since: exampleTime.AddDate(0, 0, -30), Jobs: 60, Users: 5, GPUs: 8, VRAMMiB: 81920,
	Policies: []ReplayPolicy{{Name: "backfill", About: "by priority, then submission"}, {Name: "fair", About: "by priority, then least usage of the user"}},
	Figures: []ReplayFigure{{Name: "wait_mean_s", Title: "wait, mean", Values: []ReplayValue{
		{Value: 8580, Text: "2h23m"}, {Value: 7320, Text: "2h02m", Best: true},
	}}},
	Notes: []string{"3 jobs left out: never started, or had no GPU"},
	Known: []ReplayPolicy{{Name: "backfill", About: "by priority, then submission"}},
}

var exampleSnapshot = json.RawMessage(`{"format":"berth-snapshot","version":1,"now":"2026-03-01T14:02:10Z",` +
	`"rules":{"policy":"backfill","fair":true},"host":{},"cards":[{"index":0,"total_mib":24576}],` +
	`"held":[{"job":"16","cards":[0],"user":"ann","started":"2026-03-01T13:00:00Z"}],` +
	`"queue":[{"job":"17","user":"ann","request":{"gpus":1}}],"default_limit":{}}`)
