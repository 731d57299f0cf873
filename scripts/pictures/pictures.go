package main

import (
	"fmt"
	"math"
)

// pictures are all of them, one for each page of docs/explanation.
func pictures() []*picture {
	return []*picture{queues(), order(), placement(), estimates(), supervisors(), health(), isolation(), security()}
}

func queues() *picture {
	p := &picture{name: "queues", width: 760, height: 250, title: "A queue, and four ways to look at it",
		desc: "On the left, four clients: berth run, berth list, berth top and the page. They talk to the process of a queue in the middle, which is a daemon or the own queue of a run. " +
			"On the right, supervisors, each with a job. They go on when the process of the queue ends."}
	for i, client := range [][]string{{"berth run jobs.txt"}, {"berth list, why, …"}, {"berth top"}, {"berth web"}} {
		p.box(20, 20+54*i, 170, 40, "blue", client...)
		p.arrow(192, 40+54*i, 288, 92+18*i, "plain")
	}
	p.box(290, 74, 170, 92, "green", "the queue's process", "a daemon, or the", "own queue of a run")
	for i := range 3 {
		y := 38 + 62*i
		p.arrow(462, 102+18*i, 528, y+20, "plain")
		p.box(530, y, 100, 40, "grey", "supervisor")
		p.arrow(632, y+20, 668, y+20, "plain")
		p.box(670, y, 70, 40, "amber", "job")
	}
	p.text(20, 243, "small", "Clients come and go. If the process of the queue ends, supervisors and jobs go on.")
	return p
}

func order() *picture {
	p := &picture{name: "order", width: 760, height: 420, title: "Which job goes next",
		desc: "Above, the queue in order: an overdue job, a job with priority 5, a job that needs four GPUs, and two later jobs. " +
			"Below, four GPUs over time. The four-GPU job has a reservation from 3 h on. A one-hour job backfills before it. A six-hour job would delay it and waits."}
	p.text(20, 30, "bold", "The queue, in order")
	for i, job := range [][]string{
		{"job 12", "overdue:", "waited 50 h"}, {"job 31", "priority 5"}, {"job 18", "bob: least usage", "needs 4 GPUs"}, {"job 20", "ann, 1 GPU", "about 1 h"}, {"job 22", "ann, 1 GPU", "about 6 h"},
	} {
		class := []string{"red", "amber", "blue", "green", "grey"}[i]
		p.box(20+148*i, 44, 128, 66, class, job...)
		if i > 0 {
			p.arrow(148*i, 77, 18+148*i, 77, "plain")
		}
	}
	const left, top, row, hour = 90, 176, 40, 100
	p.text(20, 152, "bold", "The GPUs, now and later")
	for gpu := range 4 {
		p.text(left-12, top+row*gpu+24, "right", fmt.Sprint("GPU ", gpu))
		p.line(left, top+row*gpu+row, left+6*hour, top+row*gpu+row, "plain")
	}
	p.box(left, top+2, 2*hour, row-4, "red", "job 12")
	p.box(left, top+row+2, 3*hour, row-4, "amber", "job 31")
	p.box(left, top+2*row+2, 3*hour, row-4, "grey", "job 7, running")
	p.box(left, top+3*row+2, hour, row-4, "green", "job 20")
	p.box(left+3*hour, top+2, 3*hour, 4*row-4, "blue", "reserved for job 18", "starts when all four are free")
	for h := 0; h <= 6; h++ {
		label := fmt.Sprintf("+%d h", h)
		if h == 0 {
			label = "now"
		}
		p.text(left+h*hour, top+4*row+20, "small mid", label)
	}
	p.text(20, 386, "", "job 20 ends before the reservation: it backfills.")
	p.text(20, 406, "", "job 22 would still run at +3 h and delay job 18: it waits.")
	return p
}

func placement() *picture {
	p := &picture{name: "placement", width: 760, height: 250, title: "Headroom on one GPU",
		desc: "A GPU of 24 GiB. The driver reserves 0.5 GiB. An external process counts 4.4 GiB: its peak of 4.0 plus 10 %. Job 7 declared 8 GiB and job 9 declared 6 GiB. " +
			"The headroom is 5.1 GiB. A job with vram=4G needs 4.5 GiB with the margin and fits. A job with vram=5G needs 5.5 GiB and waits."}
	const left, gib = 20, 30
	p.text(left, 30, "bold", "One GPU of 24 GiB")
	x := left
	for _, part := range []struct {
		tenths int
		class  string
		lines  []string
	}{
		{5, "grey", nil}, {44, "amber", []string{"external", "4.0 + 10 %"}}, {80, "blue", []string{"job 7", "declared 8.0 GiB"}},
		{60, "blue", []string{"job 9", "declared 6.0 GiB"}}, {51, "", []string{"headroom", "5.1 GiB"}},
	} {
		w := part.tenths * gib / 10
		p.box(x, 44, w, 70, part.class, part.lines...)
		x += w
	}
	p.text(left, 134, "small", "driver 0.5")
	head := x - 51*gib/10
	p.line(head, 114, head, 225, "plain dashed")
	p.line(x, 114, x, 225, "plain dashed")
	p.box(head, 146, 45*gib/10, 32, "green", "4 + margin")
	p.text(head-14, 167, "right", "vram=4G needs 4.5 GiB with the margin: it fits")
	p.box(head, 190, 55*gib/10, 32, "red", "5 + margin")
	p.text(head-14, 211, "right", "vram=5G needs 5.5 GiB with the margin: it waits")
	return p
}

func estimates() *picture {
	p := &picture{name: "estimates", width: 760, height: 300, title: "How an estimate narrows",
		desc: "Intervals around an expected duration of two hours on a logarithmic scale. After one run the interval reaches a factor of 9.6 each way, " +
			"after two runs 4.7, after eight 2.1, after sixteen 1.7. A time limit of three hours cuts the interval off."}
	const left, right, middle = 210, 720, 120.0
	at := func(minutes float64) int {
		return left + int(math.Round(float64(right-left)*math.Log(minutes/10)/math.Log(1440.0/10)))
	}
	p.text(20, 30, "bold", "Expected duration after runs of about 2 hours")
	rows := []struct {
		label  string
		factor float64
		limit  float64
	}{{"1 run", 9.6, 0}, {"2 runs", 4.7, 0}, {"8 runs", 2.1, 0}, {"16 runs", 1.7, 0}, {"16 runs and -t 3h", 1.7, 180}}
	for i, row := range rows {
		y := 52 + 38*i
		low, high := at(middle/row.factor), at(middle*row.factor)
		if row.limit > 0 {
			high = at(row.limit)
		}
		p.text(left-20, y+19, "right", row.label)
		p.bar(low, y, high-low, 26, "blue")
	}
	p.line(at(middle), 44, at(middle), 250, "plain dashed")
	for _, tick := range []struct {
		minutes float64
		label   string
	}{{10, "10 min"}, {30, "30 min"}, {60, "1 h"}, {120, "2 h"}, {240, "4 h"}, {480, "8 h"}, {1440, "24 h"}} {
		p.line(at(tick.minutes), 250, at(tick.minutes), 256, "plain")
		p.text(at(tick.minutes), 274, "small mid", tick.label)
	}
	p.line(left, 250, right, 250, "plain")
	return p
}

func supervisors() *picture {
	p := &picture{name: "supervisors", width: 760, height: 360, title: "A job outlives the berth that started it",
		desc: "berth starts a supervisor and sends it go. The supervisor starts the job's processes and writes a record to disk. berth is killed. " +
			"The supervisor and the job continue. The next berth finds the lock, the record and the socket, and adopts the job."}
	p.box(20, 40, 190, 70, "blue", "berth", "daemon or berth run")
	p.box(20, 250, 190, 70, "blue", "the next berth", "adopts the job")
	p.box(300, 145, 180, 70, "green", "supervisor", "berth-keep, one per job")
	p.box(590, 145, 150, 70, "amber", "the job", "all its processes")
	p.box(300, 270, 180, 70, "grey", "keep/<token>/", "lock, record, sock")
	p.box(300, 30, 180, 70, "grey", "store", "job 7, attempt 1")
	p.arrow(210, 65, 296, 65, "plain")
	p.text(253, 57, "small mid", "1 commit")
	p.arrow(210, 100, 298, 152, "plain")
	p.text(222, 138, "small right", "2 go")
	p.arrow(480, 180, 586, 180, "plain")
	p.text(533, 172, "small mid", "4 starts")
	p.arrow(390, 215, 390, 266, "plain")
	p.text(400, 236, "small", "3 writes \"started\",")
	p.text(400, 252, "small", "5 writes \"ended\"")
	p.arrow(210, 300, 296, 305, "plain")
	p.text(253, 330, "small mid", "reads")
	p.arrow(210, 262, 298, 208, "plain")
	p.text(222, 232, "small right", "connects")
	p.line(22, 42, 208, 108, "bad")
	p.line(22, 108, 208, 42, "bad")
	p.text(115, 132, "small mid", "kill -9")
	return p
}

func health() *picture {
	p := &picture{name: "health", width: 760, height: 270, title: "The health of a GPU",
		desc: "Three states. From ok, new ECC errors, an NVLink error or leftover memory lead to suspect. From ok or suspect, a GPU that does not answer for 10 seconds, an Xid that needs a reset, or an administrator lead to quarantined. " +
			"Good readings, a reset, a reboot or an administrator lead back to ok. Only an ok GPU takes new jobs."}
	p.box(30, 100, 150, 70, "green", "ok", "takes new jobs")
	p.box(305, 100, 150, 70, "amber", "suspect", "no new jobs")
	p.box(580, 100, 150, 70, "red", "quarantined", "no new jobs")
	p.arrow(180, 122, 301, 122, "plain")
	p.text(242, 96, "small mid", "ECC, NVLink,")
	p.text(242, 112, "small mid", "leftover memory")
	p.arrow(455, 122, 576, 122, "plain")
	p.text(517, 96, "small mid", "no answer")
	p.text(517, 112, "small mid", "for 10 s")
	p.arrow(301, 150, 184, 150, "plain")
	p.text(242, 168, "small mid", "it has passed")
	p.path("M105 98 C105 28 655 28 655 98", "plain")
	p.tip(655, 80, 655, 98, "plain")
	p.text(380, 34, "small mid", "an Xid that needs a reset, off the bus, or an administrator")
	p.path("M655 172 C655 242 105 242 105 172", "plain")
	p.tip(105, 190, 105, 172, "plain")
	p.text(380, 246, "small mid", "good readings, a reset, a reboot, or an administrator")
	return p
}

func isolation() *picture {
	p := &picture{name: "isolation", width: 760, height: 300, title: "A job can open its own GPUs and no others",
		desc: "Two jobs, each in a cgroup with a device filter. Job 7 may open /dev/nvidia1; its attempt to open /dev/nvidia0 is refused. Job 8 may open /dev/nvidia0; its attempt to open /dev/nvidia1 is refused."}
	for i, job := range []struct {
		name, user string
		y, own     int
	}{{"job 7", "ann, GPU 1", 40, 1}, {"job 8", "bob, GPU 0", 180, 0}} {
		p.bar(20, job.y, 300, 90, "")
		p.text(32, job.y+18, "small", "the job's cgroup")
		p.box(40, job.y+28, 120, 48, "amber", job.name, job.user)
		p.box(200, job.y+28, 110, 48, "grey", "device filter")
		p.arrow(160, job.y+52, 196, job.y+52, "plain")
		straight, across := [2]int{job.y + 40, 64}, [2]int{job.y + 64, 204}
		if i == 1 {
			straight, across = [2]int{job.y + 64, 240}, [2]int{job.y + 40, 100}
		}
		p.arrow(310, straight[0], 556, straight[1], class(job.own == 1-i))
		p.arrow(310, across[0], 556, across[1], class(job.own == i))
	}
	p.box(560, 50, 180, 60, "blue", "/dev/nvidia0", "GPU 0")
	p.box(560, 190, 180, 60, "blue", "/dev/nvidia1", "GPU 1")
	p.line(340, 282, 380, 282, "good")
	p.text(388, 286, "small", "open")
	p.line(450, 282, 490, 282, "bad dashed")
	p.text(498, 286, "small", "Operation not permitted")
	return p
}

// class is the line of an open that is allowed or refused. Refused ones are
// dashed too, for readers who cannot tell the colours apart.
func class(refused bool) string {
	if refused {
		return "bad dashed"
	}
	return "good"
}

func security() *picture {
	p := &picture{name: "security", width: 760, height: 290, title: "How a shared daemon runs a user's job",
		desc: "ann and bob connect to one socket. The kernel tells the daemon who each of them is. The daemon, running as root, starts a supervisor as root. " +
			"The supervisor starts a stage that becomes ann, proves it, and only then opens ann's directory and log and executes her command."}
	p.box(20, 60, 100, 46, "amber", "ann")
	p.box(20, 150, 100, 46, "amber", "bob")
	p.box(190, 90, 130, 70, "grey", "one socket", "for all users")
	p.arrow(120, 84, 186, 112, "plain")
	p.arrow(120, 172, 186, 140, "plain")
	p.text(255, 184, "small mid", "the kernel says")
	p.text(255, 200, "small mid", "who is calling")
	p.box(390, 90, 120, 70, "red", "daemon", "as root")
	p.arrow(320, 125, 386, 125, "plain")
	p.box(590, 30, 150, 56, "red", "supervisor", "as root, one per job")
	p.arrow(510, 110, 586, 70, "plain")
	p.box(590, 122, 150, 56, "green", "stage", "becomes ann, proves it")
	p.arrow(665, 86, 665, 118, "plain")
	p.box(590, 214, 150, 56, "green", "ann's command", "her directory and log")
	p.arrow(665, 178, 665, 210, "plain")
	p.text(570, 246, "small right", "opens ann's files only as ann")
	p.box(20, 230, 22, 16, "red")
	p.text(50, 243, "small", "runs as root, touches no path a user controls")
	p.box(20, 256, 22, 16, "green")
	p.text(50, 269, "small", "runs as the user")
	return p
}
