// The calls that list: processes in all three layouts, parts and links.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "handle.h"

// Drivers gave more about a process over the years; the second layout and the
// third are the same.
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *infos, const char *kinds, int first_layout) {
	ABOUT(device);
	struct process all[MAX_PROCESSES];
	int found = state_processes(now, card, part, kinds, all, MAX_PROCESSES);
	unsigned int room = *count;
	*count = found;
	if (room < (unsigned int)found) return NVML_ERROR_INSUFFICIENT_SIZE;
	for (int i = 0; i < found; i++) {
		if (first_layout) {
			((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){all[i].pid, all[i].bytes};
			continue;
		}
		nvmlProcessInfo_t info = {all[i].pid, all[i].bytes, ~0u, ~0u};
		if (part >= 0) {
			info.gpuInstanceId = card->parts[part].gpu_instance;
			info.computeInstanceId = card->parts[part].compute_instance;
		}
		((nvmlProcessInfo_t *)infos)[i] = info;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { return list(device, count, infos, "cm", 1); }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) { return list(device, count, infos, "cm", 0); }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, "cm", 0); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { return list(device, count, infos, "g", 1); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) { return list(device, count, infos, "g", 0); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, "g", 0); }
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) { return list(device, count, infos, "m", 0); }
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, "m", 0); }

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since) {
	WHOLE(device);
	KNOWN(card->process_util);
	struct process all[MAX_PROCESSES];
	struct timespec at;
	clock_gettime(CLOCK_REALTIME, &at);
	unsigned long long micros = at.tv_sec * 1000000ULL + at.tv_nsec / 1000;
	int listed = state_processes(now, card, -1, "cgm", all, MAX_PROCESSES), found = 0;
	for (int i = 0; i < listed; i++) {
		if (all[i].sm >= 0) all[found++] = all[i];
	}
	unsigned int room = *count;
	// Each is listed twice, an older sample after the newer one, like a ring buffer.
	*count = 2 * found;
	if (found == 0 || since >= micros) return NVML_ERROR_NOT_FOUND;
	if (!samples || room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
	memset(samples, 0, *count * sizeof *samples);
	for (int i = 0; i < found; i++) {
		samples[i].pid = samples[found + i].pid = all[i].pid;
		samples[i].timeStamp = micros;
		samples[found + i].timeStamp = micros - 500000;
		samples[i].smUtil = all[i].sm;
		samples[found + i].smUtil = 1;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *is, unsigned int *will) {
	WHOLE(device);
	KNOWN(card->mig);
	*is = *will = card->mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	WHOLE(device);
	*count = card->mig < 0 ? 0 : MAX_PARTS - 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *into) {
	WHOLE(device);
	if (index >= (unsigned int)card->part_count) return NVML_ERROR_NOT_FOUND;
	*into = handle_of(card->slot, index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
	ABOUT(device);
	if (part < 0) return NVML_ERROR_NOT_SUPPORTED;
	*id = card->parts[part].gpu_instance;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
	ABOUT(device);
	if (part < 0) return NVML_ERROR_NOT_SUPPORTED;
	*id = card->parts[part].compute_instance;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
	ABOUT(device);
	if (part < 0) return NVML_ERROR_NOT_SUPPORTED;
	memset(attributes, 0, sizeof *attributes);
	attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = card->parts[part].slices;
	attributes->memorySizeMB = card->parts[part].total >> 20;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
	WHOLE(device);
	if (card->link_count == 0) return NVML_ERROR_NOT_SUPPORTED;
	if (link >= MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
	*active = link < (unsigned int)card->link_count;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
	WHOLE(device);
	if (link >= (unsigned int)card->link_count) return NVML_ERROR_NOT_SUPPORTED;
	*type = card->links[link].type;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *into) {
	WHOLE(device);
	if (link >= (unsigned int)card->link_count) return NVML_ERROR_NOT_SUPPORTED;
	pci_info(card->links[link].bus, into);
	return NVML_SUCCESS;
}
