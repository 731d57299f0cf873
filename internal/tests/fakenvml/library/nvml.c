// A driver library for tests: nvmlDeviceGet… returns what the state file says,
// and a card can be lost, hang or abort the process.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "handle.h"

static nvmlReturn_t text(char *into, unsigned int length, const char *from) {
	if (strlen(from) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(into, from);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
	(void)flags;
	const struct state *now = state_now();
	if (now->init_hangs) state_hang("init", now->init_hangs > 1);
	if (now->init_result != NVML_SUCCESS) return now->init_result;
	state_log("init %d\n", getpid());
	handles_start(1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
	if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
	state_log("shutdown %d\n", getpid());
	handles_start(-1);
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) { return text(version, length, state_now()->driver); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return text(version, length, state_now()->nvml); }

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
	*version = state_now()->cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
	*count = state_now()->card_count;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	if (!handles_ready()) return NVML_ERROR_UNINITIALIZED;
	const struct state *now = state_now();
	if (index >= (unsigned int)now->card_count) return NVML_ERROR_INVALID_ARGUMENT;
	*device = handle_of(now->cards[index].slot, -1);
	return handle_broken(&now->cards[index]);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	ABOUT(device);
	return text(uuid, length, part < 0 ? card->uuid : card->parts[part].uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	ABOUT(device);
	char whole[256];
	snprintf(whole, sizeof whole, "%s%s%s", card->name, part < 0 ? "" : " MIG ", part < 0 ? "" : card->parts[part].profile);
	return text(name, length, whole);
}

void pci_info(const char *bus, nvmlPciInfo_t *into) {
	memset(into, 0, sizeof *into);
	snprintf(into->busId, sizeof into->busId, "%s", bus);
	sscanf(bus, "%x:%x:%x", &into->domain, &into->bus, &into->device);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *into) {
	ABOUT(device);
	pci_info(card->bus, into);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
	WHOLE(device);
	KNOWN(card->minor);
	*minor = card->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
	ABOUT(device);
	struct process all[MAX_PROCESSES];
	int count = state_processes(now, card, part, "cgm", all, MAX_PROCESSES);
	memory->total = part < 0 ? card->total : card->parts[part].total;
	memory->reserved = part < 0 ? card->reserved : card->parts[part].reserved;
	memory->used = part < 0 ? card->stray : card->parts[part].stray;
	for (int i = 0; i < count; i++) {
		if (all[i].bytes != ~0ULL) memory->used += all[i].bytes;
	}
	memory->free = memory->total > memory->reserved + memory->used ? memory->total - memory->reserved - memory->used : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	nvmlMemory_v2_t second;
	nvmlReturn_t wrong = nvmlDeviceGetMemoryInfo_v2(device, &second);
	memory->total = second.total;
	memory->free = second.free;
	memory->used = second.used + second.reserved;
	return wrong;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
	WHOLE(device);
	KNOWN(card->util);
	rates->gpu = card->util;
	rates->memory = card->util / 2;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *degrees) {
	(void)sensor;
	WHOLE(device);
	KNOWN(card->temperature);
	*degrees = card->temperature;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
	WHOLE(device);
	KNOWN(card->power);
	*milliwatts = card->power;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts) {
	WHOLE(device);
	KNOWN(card->power_limit);
	*milliwatts = card->power_limit;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *megahertz) {
	WHOLE(device);
	int clock = type == NVML_CLOCK_MEM ? card->memory_clock : card->sm_clock;
	KNOWN(clock);
	*megahertz = clock;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t since, unsigned long long *count) {
	(void)since;
	WHOLE(device);
	long long errors = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? card->corrected : card->uncorrected;
	KNOWN(errors);
	*count = errors;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed) {
	WHOLE(device);
	KNOWN(card->rows_corrected);
	*corrected = card->rows_corrected;
	*uncorrected = card->rows_uncorrected;
	*pending = card->rows_pending;
	*failed = card->rows_failed;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
	WHOLE(device);
	KNOWN(card->retired_pending);
	*pending = card->retired_pending;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	WHOLE(device);
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || card->recovery < 0) continue;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = card->recovery;
		values[i].nvmlReturn = NVML_SUCCESS;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
	WHOLE(device);
	KNOWN(card->persistence);
	*mode = card->persistence;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
	WHOLE(device);
	KNOWN(card->limits);
	unsigned long long none = NVML_DEVICE_MEMORY_LIMIT_MAX;
	if (limits->hardLimit == 0 || limits->softLimit > limits->hardLimit || (limits->hardLimit != none && limits->hardLimit > card->total)) return NVML_ERROR_INVALID_ARGUMENT;
	state_log("limit %s %llu %llu %s\n", card->uuid, limits->softLimit, limits->hardLimit == none ? 0 : limits->hardLimit, limits->nameSpace);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
	(void)limits;
	WHOLE(device);
	KNOWN(card->limits);
	return NVML_ERROR_NOT_FOUND;
}
