//go:build cgo

package main

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// symbol is a call that an older driver may lack. go-nvml ends the whole
// process when a missing one is called, so has is checked before each call.
type symbol int

const (
	memoryV2 symbol = iota
	minorNumber
	utilisation
	temperature
	powerUsage
	powerLimit
	clocks
	eccErrors
	remappedRows
	retiredPages
	fieldValues
	persistence
	computeList
	graphicsList
	mpsList
	processUtilisation
	migMode
	migHandles
	migAttributes
	linkState
	linkType
	linkRemote
	eventSets
	eventTypes
	eventRegister
	eventWait
	setLimits
	getLimits
	driverVersion
	nvmlVersion
	cudaVersion
	symbolCount
)

// symbolNames are the names of each call, newest first. One of them is enough,
// as go-nvml uses the newest that exists.
var symbolNames = [symbolCount][]string{
	memoryV2:           {"nvmlDeviceGetMemoryInfo_v2"},
	minorNumber:        {"nvmlDeviceGetMinorNumber"},
	utilisation:        {"nvmlDeviceGetUtilizationRates"},
	temperature:        {"nvmlDeviceGetTemperature"},
	powerUsage:         {"nvmlDeviceGetPowerUsage"},
	powerLimit:         {"nvmlDeviceGetEnforcedPowerLimit"},
	clocks:             {"nvmlDeviceGetClockInfo"},
	eccErrors:          {"nvmlDeviceGetTotalEccErrors"},
	remappedRows:       {"nvmlDeviceGetRemappedRows"},
	retiredPages:       {"nvmlDeviceGetRetiredPagesPendingStatus"},
	fieldValues:        {"nvmlDeviceGetFieldValues"},
	persistence:        {"nvmlDeviceGetPersistenceMode"},
	computeList:        {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"},
	graphicsList:       {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses"},
	mpsList:            {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses"},
	processUtilisation: {"nvmlDeviceGetProcessUtilization"},
	migMode:            {"nvmlDeviceGetMigMode"},
	migHandles:         {"nvmlDeviceGetMigDeviceHandleByIndex"},
	migAttributes:      {"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"},
	linkState:          {"nvmlDeviceGetNvLinkState"},
	linkType:           {"nvmlDeviceGetNvLinkRemoteDeviceType"},
	linkRemote:         {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"},
	eventSets:          {"nvmlEventSetCreate"},
	eventTypes:         {"nvmlDeviceGetSupportedEventTypes"},
	eventRegister:      {"nvmlDeviceRegisterEvents"},
	eventWait:          {"nvmlEventSetWait_v2", "nvmlEventSetWait"},
	setLimits:          {"nvmlDeviceSetMemoryLimits_v1"},
	getLimits:          {"nvmlDeviceGetMemoryLimits_v1"},
	driverVersion:      {"nvmlSystemGetDriverVersion"},
	nvmlVersion:        {"nvmlSystemGetNVMLVersion"},
	cudaVersion:        {"nvmlSystemGetCudaDriverVersion"},
}

// lookUp finds the calls that this driver has.
func lookUp(library nvml.Interface) (has [symbolCount]bool) {
	for symbol, names := range symbolNames {
		for _, name := range names {
			if library.Extensions().LookupSymbol(name) == nil {
				has[symbol] = true
				break
			}
		}
	}
	return has
}
