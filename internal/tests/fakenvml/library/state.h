// What the fake driver library shows. It is a text file that a test rewrites;
// every call checks whether it has changed.
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include "nvml.h"

enum { MAX_CARDS = 16, MAX_PARTS = 8, MAX_PROCESSES = 1024, MAX_LINKS = 18, MAX_XIDS = 64 };

enum mode { FINE, LOST, HANGS, HANGS_HARD, ABORTS, FAULTY, GONE };

struct process {
	int slot, part; // part -1: of the whole card
	char kind;      // c computes, g draws, m computes through MPS
	unsigned int pid;
	unsigned long long bytes; // all bits set: not available
	int sm;                   // per cent; -1: no sample of it
};

struct part {
	int gpu_instance, compute_instance, slices;
	char uuid[96], profile[32];
	unsigned long long total, reserved, stray;
};

struct link {
	int type;
	char bus[32];
};

struct card {
	int slot; // its position in the test, whatever its index is now
	char uuid[96], name[96], bus[32];
	int minor, util, process_util, temperature, power, power_limit, sm_clock, memory_clock;
	unsigned long long total, reserved, stray; // stray: not of a listed process
	long long corrected, uncorrected;
	int rows_corrected, rows_uncorrected, rows_pending, rows_failed, retired_pending;
	int recovery, persistence, limits, mig, xids;
	enum mode mode;
	int fault; // what calls return in mode FAULTY
	struct part parts[MAX_PARTS];
	int part_count;
	struct link links[MAX_LINKS];
	int link_count;
};

struct xid {
	unsigned long long serial, type, code;
	int slot;
};

struct state {
	char driver[64], nvml[64], claims[256];
	int cuda, slow_ms, init_result, init_hangs, events_hang;
	struct card cards[MAX_CARDS]; // in the driver's order
	int card_count;
	struct process processes[MAX_PROCESSES];
	int process_count;
	struct xid xids[MAX_XIDS];
	int xid_count;
};

// state_now is the state as the file has it now. It stays valid for some
// further states.
const struct state *state_now(void);

// state_log appends a line about what this process did, for the test to read.
void state_log(const char *format, ...);

// state_hang never returns. Hard: not even SIGTERM gets through.
void state_hang(const char *what, int hard) __attribute__((noreturn));

// state_processes copies what runs on a card or a part of it, of the wanted
// kinds, with what living processes claimed for themselves; at most most.
int state_processes(const struct state *now, const struct card *card, int part, const char *kinds, struct process *into, int most);

#endif
