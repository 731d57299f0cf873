// What a handle refers to, and how a call about it fails.
#ifndef FAKE_HANDLE_H
#define FAKE_HANDLE_H

#include "state.h"

int handles_ready(void);
void handles_start(int by);
nvmlDevice_t handle_of(int slot, int part);

// handle_broken is how a call about that card ends, if it ends.
nvmlReturn_t handle_broken(const struct card *card);

// handle_about finds what a handle refers to; part is -1 for a whole card.
nvmlReturn_t handle_about(nvmlDevice_t device, const struct state **now, const struct card **card, int *part);

void pci_info(const char *bus, nvmlPciInfo_t *into);

#define ABOUT(device)                                        \
	const struct state *now;                                 \
	const struct card *card;                                 \
	int part;                                                \
	nvmlReturn_t wrong = handle_about(device, &now, &card, &part);  \
	(void)now;                                               \
	if (wrong != NVML_SUCCESS) return wrong

#define WHOLE(device) \
	ABOUT(device);    \
	if (part >= 0) return NVML_ERROR_NOT_SUPPORTED

// KNOWN ends a call whose value is negative: this card does not report it.
#define KNOWN(value) \
	if ((value) < 0) return NVML_ERROR_NOT_SUPPORTED

#endif
