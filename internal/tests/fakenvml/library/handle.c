#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "handle.h"

// A handle is the address of a card's slot, or of one of its parts.
static char handles[MAX_CARDS][1 + MAX_PARTS];
static int started;
// Cards that were lost while this process used the driver: for it they stay lost.
static int gone[MAX_CARDS];

int handles_ready(void) { return __atomic_load_n(&started, __ATOMIC_SEQ_CST) > 0; }
void handles_start(int by) { __atomic_add_fetch(&started, by, __ATOMIC_SEQ_CST); }
nvmlDevice_t handle_of(int slot, int part) { return (nvmlDevice_t){(void *)&handles[slot][1 + part]}; }

nvmlReturn_t handle_broken(const struct card *card) {
	char what[16];
	snprintf(what, sizeof what, "%d", card->slot);
	if (card->mode == GONE) gone[card->slot] = 1;
	if (gone[card->slot]) return NVML_ERROR_GPU_IS_LOST;
	switch (card->mode) {
	case GONE: return NVML_ERROR_GPU_IS_LOST;
	case FINE: return NVML_SUCCESS;
	case LOST: return NVML_ERROR_GPU_IS_LOST;
	case HANGS: state_hang(what, 0);
	case HANGS_HARD: state_hang(what, 1);
	case ABORTS: abort();
	case FAULTY: return card->fault;
	}
	return NVML_ERROR_UNKNOWN;
}

nvmlReturn_t handle_about(nvmlDevice_t device, const struct state **now, const struct card **card, int *part) {
	if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
	long at = (char *)device.handle - &handles[0][0];
	if (at < 0 || at >= (long)sizeof handles) return NVML_ERROR_INVALID_ARGUMENT;
	*now = state_now();
	*part = at % (1 + MAX_PARTS) - 1;
	for (int i = 0; i < (*now)->card_count; i++) {
		*card = &(*now)->cards[i];
		if ((*card)->slot != at / (1 + MAX_PARTS)) continue;
		nvmlReturn_t wrong = handle_broken(*card);
		if (wrong == NVML_SUCCESS && *part >= (*card)->part_count) return NVML_ERROR_NOT_FOUND;
		return wrong;
	}
	return NVML_ERROR_GPU_IS_LOST;
}
