package modelfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/job/jobfile"
	"berth/internal/job/modelsize"
	"berth/internal/text"
)

const (
	// SizesFile is the usual table of models.
	SizesFile     = "llm_config.json"
	maxSizesBytes = 16 << 20
)

// ReadSizes reads a table of models.
func ReadSizes(dir, path string) (jobfile.Sizes, error) {
	content, err := readAll(within(dir, path), maxSizesBytes)
	if err != nil {
		return jobfile.Sizes{}, fmt.Errorf("model sizes: %w", err)
	}
	return jobfile.ParseSizes(path, content)
}

func within(dir, path string) string {
	if filepath.IsAbs(path) || strings.HasPrefix(path, "~/") {
		return path
	}
	return filepath.Join(dir, path)
}

// Declare works out the memory on each GPU that a value such as
// estimate:PATH,context=8192 declares: the upper end of the estimate, or what the
// table of models says. A relative path is in this directory.
func Declare(dir, value string) (mib int64, err error) {
	rest, _ := strings.CutPrefix(value, jobfile.EstimatePrefix)
	path, use, err := cutUse(rest)
	if err != nil {
		return 0, err
	}
	m, err := Read(within(dir, path))
	if errors.Is(err, fs.ErrNotExist) && !Exists(within(dir, path)) {
		need, err := Lookup(dir, SizesFile, path, err)
		if err == nil && need.VRAMMiB == 0 {
			err = fmt.Errorf("%s has no memory for %s; write {\"gpus\": 1, \"vram\": \"18G\"}", SizesFile, text.Found(path))
		}
		return need.VRAMMiB, err
	}
	if err != nil {
		return 0, err
	}
	e, err := m.Estimate(use)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return int64(math.Ceil(e.High / (1 << 20))), nil
}

// Lookup takes the needs of a name that is no file from a table of models. Its error
// says what was probably meant.
func Lookup(dir, table, name string, missing error) (need jobfile.ModelNeed, err error) {
	sizes, err := ReadSizes(dir, table)
	known := false
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return need, err
	default:
		if need, known = sizes.Lookup(name); known {
			return need, nil
		}
		missing = fmt.Errorf("%w, and no model of that name is in %s", missing, table)
	}
	meant := text.Nearest(name, sizes.Names())
	if meant == "" {
		meant = beside(dir, name)
	}
	if meant != "" {
		missing = fmt.Errorf("%w (did you mean %s?)", missing, meant)
	}
	return need, missing
}

// mostBeside is how many files of a directory are compared with a mistyped one.
const mostBeside = 1000

// beside is the path whose last part is nearest to the first one of a path that does
// not exist; empty: none is near.
func beside(dir, path string) string {
	path = filepath.Clean(path)
	for !Exists(within(dir, filepath.Dir(path))) {
		if path = filepath.Dir(path); path == filepath.Dir(path) {
			return ""
		}
	}
	in, err := os.OpenFile(whole(within(dir, filepath.Dir(path))), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return ""
	}
	defer in.Close()
	names, _ := in.Readdirnames(mostBeside) // as far as it can be read
	slices.Sort(names)
	near := text.Nearest(filepath.Base(path), names)
	if near == "" {
		return ""
	}
	return text.Line(filepath.Join(filepath.Dir(path), near))
}

// useKeys are what may follow a path, after commas.
var useKeys = []string{"context", "batch", "dtype", "train", "rank", "checkpointing"}

// cutUse splits PATH,KEY=VALUE,… into the path and what the model is used for. A
// comma that no key follows belongs to the path.
func cutUse(value string) (path string, use modelsize.Use, err error) {
	path = value
	for {
		at := strings.LastIndexByte(path, ',')
		if at < 0 {
			break
		}
		key, setting, found := strings.Cut(path[at+1:], "=")
		if !slices.Contains(useKeys, key) {
			if near := text.Nearest(key, useKeys); found && near != "" {
				return "", use, fmt.Errorf("unknown key %s (did you mean %s?); the keys are %s", text.Found(key), near, strings.Join(useKeys, ", "))
			}
			break
		}
		if err := setUse(&use, key, setting); err != nil {
			return "", use, err
		}
		path = path[:at]
	}
	if path == "" {
		return "", use, errors.New("expected estimate:PATH, found no path")
	}
	return path, use, nil
}

func setUse(use *modelsize.Use, key, value string) error {
	number := map[string]*int64{"context": &use.Context, "batch": &use.Batch, "rank": &use.Rank}[key]
	switch key {
	case "dtype":
		use.DType = value
	case "train":
		use.Train = modelsize.Train(value)
	case "checkpointing":
		if value != "" && value != "true" {
			return fmt.Errorf("checkpointing: expected true or no value, found %s", text.Found(value))
		}
		use.Recompute = true
	default:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%s: expected a whole number above 0, found %s", key, text.Found(value))
		}
		*number = n
	}
	return nil
}

// Resolve puts sizes in the place of the models that lines of a jobs file name.
// A model that several lines name is read once.
func Resolve(dir, name string, file *jobfile.File) error {
	var bad jobfile.Errors
	known := map[string]int64{}
	for _, line := range file.Lines {
		value := line.Spec.VRAMModel
		if value == "" {
			continue
		}
		mib, found := known[value]
		if !found {
			var err error
			if mib, err = Declare(dir, value); err != nil {
				bad.Add(name, line.Number, "vram: "+err.Error())
				continue
			}
			known[value] = mib
		}
		line.Spec.VRAMMiB, line.Spec.VRAMModel = mib, ""
	}
	if len(bad.Problems) > 0 {
		return &bad
	}
	return nil
}
