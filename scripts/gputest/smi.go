package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// smiCard is a GPU as nvidia-smi reports it.
type smiCard struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	Driver      string `json:"driver,omitempty"`
	BusID       string `json:"bus_id,omitempty"`
	TotalMiB    int64  `json:"total_mib"`
	ReservedMiB int64  `json:"reserved_mib"` // -1: not reported by this driver
	UsedMiB     int64  `json:"used_mib"`
	FreeMiB     int64  `json:"free_mib"`
}

// smi queries some columns of a list.
func smi(ctx context.Context, list, columns string) ([][]string, error) {
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(limited, "nvidia-smi", "--query-"+list+"="+columns, "--format=csv,noheader,nounits")
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi %s: %s", list, lastLine(string(text), err))
	}
	reader := csv.NewReader(strings.NewReader(string(text)))
	reader.TrimLeadingSpace = true
	reader.FieldsPerRecord = -1
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("parse nvidia-smi: %w", err)
	}
	return rows, nil
}

func mib(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func smiCards(ctx context.Context) ([]smiCard, error) {
	rows, err := smi(ctx, "gpu", "index,uuid,name,driver_version,pci.bus_id,memory.total,memory.used,memory.free,memory.reserved")
	if err != nil {
		return nil, err
	}
	var cards []smiCard
	for _, row := range rows {
		if len(row) < 9 {
			continue
		}
		index, err := strconv.Atoi(row[0])
		if err != nil {
			continue
		}
		cards = append(cards, smiCard{
			Index: index, UUID: row[1], Name: row[2], Driver: row[3], BusID: row[4],
			TotalMiB: mib(row[5]), UsedMiB: mib(row[6]), FreeMiB: mib(row[7]), ReservedMiB: mib(row[8]),
		})
	}
	if len(cards) == 0 {
		return nil, fmt.Errorf("nvidia-smi shows no GPU")
	}
	return cards, nil
}

// smiUsed is the memory in use on this run's GPU, according to nvidia-smi.
func (h *host) smiUsed(ctx context.Context) (int64, error) {
	cards, err := smiCards(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range cards {
		if c.UUID == h.Card.UUID {
			return c.UsedMiB, nil
		}
	}
	return 0, fmt.Errorf("nvidia-smi no longer shows GPU %d", h.Card.Index)
}

// smiProcesses is the memory of each process on this run's card.
func (h *host) smiProcesses(ctx context.Context) (map[int]int64, error) {
	rows, err := smi(ctx, "compute-apps", "gpu_uuid,pid,used_memory")
	if err != nil {
		return nil, err
	}
	used := map[int]int64{}
	for _, row := range rows {
		if len(row) < 3 || row[0] != h.Card.UUID {
			continue
		}
		if pid, err := strconv.Atoi(row[1]); err == nil {
			used[pid] += max(mib(row[2]), 0)
		}
	}
	return used, nil
}
