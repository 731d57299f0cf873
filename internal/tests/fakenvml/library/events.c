// Events in the state file since a set was created.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "handle.h"

struct set {
	unsigned long long seen, types[MAX_CARDS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *into) {
	if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
	struct set *set = calloc(1, sizeof *set);
	const struct state *now = state_now();
	for (int i = 0; i < now->xid_count; i++) {
		if (now->xids[i].serial > set->seen) set->seen = now->xids[i].serial;
	}
	into->handle = (void *)set;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	WHOLE(device);
	*types = card->xids ? nvmlEventTypeXidCriticalError | nvmlEventTypeGpuRecoveryAction | nvmlEventTypeGpuUnavailableError | nvmlEventTypeClock : nvmlEventTypeClock;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t into) {
	WHOLE(device);
	if (!card->xids) return NVML_ERROR_NOT_SUPPORTED;
	((struct set *)into.handle)->types[card->slot] = types;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t from, nvmlEventData_t *data, unsigned int timeout_ms) {
	struct set *set = (struct set *)from.handle;
	struct timespec step = {0, 10 * 1000000L};
	for (unsigned int waited = 0;; waited += 10) {
		if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
		const struct state *now = state_now();
		if (now->events_hang) state_hang("events", 0);
		for (int i = 0; i < now->xid_count; i++) {
			const struct xid *xid = &now->xids[i];
			if (xid->serial <= set->seen) continue;
			set->seen = xid->serial;
			if (!(set->types[xid->slot] & xid->type)) continue;
			memset(data, 0, sizeof *data);
			data->device = handle_of(xid->slot, -1);
			data->eventType = xid->type;
			data->eventData = xid->code;
			data->gpuInstanceId = data->computeInstanceId = ~0u;
			return NVML_SUCCESS;
		}
		if (waited >= timeout_ms) return NVML_ERROR_TIMEOUT;
		nanosleep(&step, NULL);
	}
}
