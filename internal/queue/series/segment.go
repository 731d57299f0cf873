package series

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hourFormat = "2006-01-02T15"
	suffix     = ".samples"
	// maxFile bounds what is read of one file: berth never writes more.
	maxFile = 64 << 20
	// diskBlock is what a file takes at least.
	diskBlock = 4 << 10
)

// segment is the file of one hour.
type segment struct {
	hour  time.Time
	path  string
	level int // how far it is thinned
	size  int64
}

func segmentAt(dir string, hour time.Time) segment {
	return segment{hour: hour, path: filepath.Join(dir, hour.UTC().Format(hourFormat)+suffix)}
}

// onDisk is what a file takes there.
func onDisk(size int64) int64 { return (size + diskBlock - 1) / diskBlock * diskBlock }

// segments lists the files of a directory, oldest first. Other files are not
// berth's.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []segment
	for _, entry := range entries {
		name, ours := strings.CutSuffix(entry.Name(), suffix)
		hour, bad := time.Parse(hourFormat, name)
		if !ours || bad != nil {
			continue
		}
		info, gone := entry.Info()
		if gone != nil || !info.Mode().IsRegular() {
			continue
		}
		s := segmentAt(dir, hour)
		s.size = info.Size()
		found = append(found, s)
	}
	slices.SortFunc(found, func(a, b segment) int { return a.hour.Compare(b.hour) })
	return found, err
}

func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
}

// leveled reads how far each file is thinned: 0 if it is damaged.
func leveled(all []segment, err error) ([]segment, error) {
	for i := range all {
		all[i].level = all[i].readLevel()
	}
	return all, err
}

func (s segment) readLevel() int {
	file, err := openFile(s.path)
	if err != nil {
		return 0
	}
	defer file.Close()
	var header [headerBytes]byte
	if _, err := io.ReadFull(file, header[:]); err != nil || string(header[:len(magic)]) != magic {
		return 0
	}
	return int(header[len(magic)])
}

// read calls fn with every block, as far as the file can be read, and returns how
// many bytes that is.
func (s segment) read(fn func(block)) (good int64, err error) {
	file, err := openFile(s.path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return 0, err
	}
	if len(data) < headerBytes || string(data[:len(magic)]) != magic {
		return 0, errDamaged
	}
	good = int64(headerBytes)
	for rest := data[headerBytes:]; len(rest) > 0; {
		b, next, err := nextBlock(rest)
		if err != nil {
			return good, err
		}
		fn(b)
		good += int64(len(rest) - len(next))
		rest = next
	}
	return good, nil
}

// content is every track of a file, in memory.
type content map[Track][]Point

// load reads a file whole, as far as that goes.
func (s segment) load() content {
	c := content{}
	_, _ = s.read(func(b block) { c[b.track] = b.appendPoints(c[b.track], s.hour) })
	for track, points := range c {
		sortPoints(points)
		c[track] = points
	}
	return c
}

func sortPoints(points []Point) {
	slices.SortStableFunc(points, func(a, b Point) int { return a.At.Compare(b.At) })
}

// perBlock is how many points fit a block, with room for its names.
const perBlock = 10_000

func (c content) encode(buf []byte, hour time.Time) []byte {
	for _, track := range slices.SortedFunc(tracksOf(c), compareTracks) {
		for part := range slices.Chunk(c[track], perBlock) {
			buf = appendBlock(buf, hour, track, part)
		}
	}
	return buf
}

// write replaces the file at once, so that a reader sees the old or the new one.
// An empty file is removed.
func (s segment) write(c content, level int) (segment, error) {
	if len(c) == 0 {
		return segment{}, os.Remove(s.path)
	}
	data := c.encode(append([]byte(magic), byte(level)), s.hour)
	temporary := s.path + ".new"
	_ = os.Remove(temporary) // of a berth that was killed
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return s, err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(temporary, s.path)
	}
	if err != nil {
		_ = os.Remove(temporary)
		return s, fmt.Errorf("rewrite %s: %w", s.path, err)
	}
	s.size, s.level = int64(len(data)), level
	return s, nil
}

// append adds blocks to the file. What an earlier berth left half written is cut
// off first, and so is what a full disk leaves of this.
func (s segment) append(blocks []byte) error {
	good, err := s.read(func(block) {})
	if err != nil && !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if good == 0 {
		blocks = append(append([]byte(magic), 0), blocks...)
	}
	if err := file.Truncate(good); err != nil {
		return err
	}
	if _, err := file.WriteAt(blocks, good); err != nil {
		return errors.Join(err, file.Truncate(good))
	}
	return nil
}
