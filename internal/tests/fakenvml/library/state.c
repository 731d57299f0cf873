#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// A call keeps its pointer while another thread reads the file again: old
// states stay for seven further changes.
static struct state ring[8];
static int current;
static struct stat read_at;

static const char *path(void) {
	const char *given = getenv("FAKE_NVML");
	return given ? given : "/nonexistent";
}

static void card_line(struct card *card, const char *key, const char *rest) {
	if (!strcmp(key, "uuid")) sscanf(rest, "%95s", card->uuid);
	else if (!strcmp(key, "name")) snprintf(card->name, sizeof card->name, "%s", rest);
	else if (!strcmp(key, "bus")) sscanf(rest, "%31s", card->bus);
	else if (!strcmp(key, "minor")) card->minor = atoi(rest);
	else if (!strcmp(key, "memory")) sscanf(rest, "%llu %llu %llu", &card->total, &card->reserved, &card->stray);
	else if (!strcmp(key, "util")) sscanf(rest, "%d %d", &card->util, &card->process_util);
	else if (!strcmp(key, "senses")) sscanf(rest, "%d %d %d %d %d", &card->temperature, &card->power, &card->power_limit, &card->sm_clock, &card->memory_clock);
	else if (!strcmp(key, "ecc")) sscanf(rest, "%lld %lld", &card->corrected, &card->uncorrected);
	else if (!strcmp(key, "rows")) sscanf(rest, "%d %d %d %d", &card->rows_corrected, &card->rows_uncorrected, &card->rows_pending, &card->rows_failed);
	else if (!strcmp(key, "retired")) card->retired_pending = atoi(rest);
	else if (!strcmp(key, "recovery")) card->recovery = atoi(rest);
	else if (!strcmp(key, "persistence")) card->persistence = atoi(rest);
	else if (!strcmp(key, "limits")) card->limits = atoi(rest);
	else if (!strcmp(key, "xids")) card->xids = atoi(rest);
	else if (!strcmp(key, "mig")) card->mig = atoi(rest);
	else if (!strcmp(key, "mode")) {
		int mode = 0;
		sscanf(rest, "%d %d", &mode, &card->fault);
		card->mode = mode;
	} else if (!strcmp(key, "part") && card->part_count < MAX_PARTS) {
		struct part *part = &card->parts[card->part_count++];
		sscanf(rest, "%d %d %d %95s %31s %llu %llu %llu", &part->gpu_instance, &part->compute_instance, &part->slices, part->uuid, part->profile, &part->total, &part->reserved, &part->stray);
	} else if (!strcmp(key, "link") && card->link_count < MAX_LINKS) {
		struct link *link = &card->links[card->link_count++];
		sscanf(rest, "%d %31s", &link->type, link->bus);
	}
}

static void line(struct state *state, const char *key, const char *rest) {
	if (!strcmp(key, "driver")) sscanf(rest, "%63s", state->driver);
	else if (!strcmp(key, "nvml")) sscanf(rest, "%63s", state->nvml);
	else if (!strcmp(key, "cuda")) state->cuda = atoi(rest);
	else if (!strcmp(key, "slow")) state->slow_ms = atoi(rest);
	else if (!strcmp(key, "claims")) sscanf(rest, "%255s", state->claims);
	else if (!strcmp(key, "init")) sscanf(rest, "%d %d", &state->init_result, &state->init_hangs);
	else if (!strcmp(key, "eventshang")) state->events_hang = atoi(rest);
	else if (!strcmp(key, "xid") && state->xid_count < MAX_XIDS) {
		struct xid *xid = &state->xids[state->xid_count++];
		sscanf(rest, "%llu %d %llu %llu", &xid->serial, &xid->slot, &xid->type, &xid->code);
	} else if (!strcmp(key, "card") && state->card_count < MAX_CARDS) {
		state->cards[state->card_count++].slot = atoi(rest);
	} else if (!strcmp(key, "process") && state->process_count < MAX_PROCESSES) {
		struct process *process = &state->processes[state->process_count++];
		sscanf(rest, "%d %d %c %u %llu %d", &process->slot, &process->part, &process->kind, &process->pid, &process->bytes, &process->sm);
	} else if (state->card_count > 0) {
		card_line(&state->cards[state->card_count - 1], key, rest);
	}
}

static void parse(struct state *state, FILE *file) {
	char text[1024];
	memset(state, 0, sizeof *state);
	while (fgets(text, sizeof text, file)) {
		text[strcspn(text, "\n")] = 0;
		char *rest = strchr(text, ' ');
		if (rest) *rest++ = 0;
		line(state, text, rest ? rest : "");
	}
}

const struct state *state_now(void) {
	struct stat is;
	pthread_mutex_lock(&lock);
	if (!stat(path(), &is) && (is.st_ino != read_at.st_ino || is.st_size != read_at.st_size || is.st_mtim.tv_nsec != read_at.st_mtim.tv_nsec || is.st_mtim.tv_sec != read_at.st_mtim.tv_sec)) {
		FILE *file = fopen(path(), "re");
		if (file) {
			parse(&ring[(current + 1) % 8], file);
			fstat(fileno(file), &read_at);
			current = (current + 1) % 8;
			fclose(file);
		}
	}
	const struct state *now = &ring[current];
	pthread_mutex_unlock(&lock);
	if (now->slow_ms > 0) {
		struct timespec wait = {now->slow_ms / 1000, now->slow_ms % 1000 * 1000000L};
		while (nanosleep(&wait, &wait) && errno == EINTR) {
		}
	}
	return now;
}

void state_log(const char *format, ...) {
	char name[512], text[1024];
	va_list rest;
	va_start(rest, format);
	int length = vsnprintf(text, sizeof text, format, rest);
	va_end(rest);
	snprintf(name, sizeof name, "%s.log", path());
	int file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (file < 0) return;
	if (write(file, text, length) < 0) abort(); // a test without its log must not continue
	close(file);
}

void state_hang(const char *what, int hard) {
	if (hard) {
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
	}
	state_log("hang %d %s\n", getpid(), what);
	for (;;) pause();
}

// claims are files in which a process claims memory: its pid as the name, the
// card's UUID or position and the MiB as the content. They last while it lives.
static int claims(const struct state *now, const struct card *card, struct process *into, int most) {
	DIR *dir = now->claims[0] ? opendir(now->claims) : NULL;
	struct dirent *entry;
	int count = 0;
	while (dir && count < most && (entry = readdir(dir))) {
		char name[512], which[96];
		unsigned long long mib;
		int pid = atoi(entry->d_name);
		if (pid <= 0 || (kill(pid, 0) && errno == ESRCH)) continue;
		snprintf(name, sizeof name, "%s/%s", now->claims, entry->d_name);
		FILE *file = fopen(name, "re");
		if (!file) continue;
		int fields = fscanf(file, "%95s %llu", which, &mib);
		fclose(file);
		if (fields != 2) continue;
		char *end;
		long slot = strtol(which, &end, 10);
		if (strcmp(which, card->uuid) && (*end || slot != card->slot)) continue;
		into[count++] = (struct process){card->slot, -1, 'c', pid, mib << 20, 50};
	}
	if (dir) closedir(dir);
	return count;
}

int state_processes(const struct state *now, const struct card *card, int part, const char *kinds, struct process *into, int most) {
	int count = 0;
	for (int i = 0; i < now->process_count && count < most; i++) {
		const struct process *process = &now->processes[i];
		if (process->slot == card->slot && process->part == part && strchr(kinds, process->kind)) into[count++] = *process;
	}
	if (part < 0 && strchr(kinds, 'c')) count += claims(now, card, into + count, most - count);
	return count;
}
