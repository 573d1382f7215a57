package crashtest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"

	"github.com/runnelmq/runnel/internal/vfs"
)

// A mutation is damage to one file, or to one name, of a directory. It follows from its fields and from what the disk
// holds, so that an image of a failure needs no more than the disk before it. Exported fields, because images are written
// with gob.
type mutation struct {
	Op    mutationOp
	Name  string // path of the file or directory
	Other string // of the copy, or what is swapped with Name
	Off   int64
	Len   int64  // bytes, or the number of the bit
	Seed  uint64 // of noise
}

type mutationOp string

const (
	opFlipBit  mutationOp = "flip bit"
	opFlipByte mutationOp = "flip byte"
	opNoise    mutationOp = "noise"
	opTruncate mutationOp = "truncate"
	opZero     mutationOp = "zero"
	opAppend   mutationOp = "append"
	opDelete   mutationOp = "delete"
	opCopy     mutationOp = "copy"
	opSwap     mutationOp = "swap"
)

func (m mutation) String() string {
	switch m.Op {
	case opDelete:
		return fmt.Sprintf("%s %s", m.Op, m.Name)
	case opCopy, opSwap:
		return fmt.Sprintf("%s %s and %s", m.Op, m.Name, m.Other)
	}
	return fmt.Sprintf("%s %d+%d in %s", m.Op, m.Off, m.Len, m.Name)
}

// names returns the one or two names that are touched.
func (m mutation) names() []string {
	if m.Other == "" {
		return []string{m.Name}
	}
	return []string{m.Name, m.Other}
}

// apply does the damage, durably.
func (m mutation) apply(d *vfs.Sim) error {
	switch m.Op {
	case opDelete:
		return removeTree(d, m.Name)
	case opCopy:
		return copyTree(d, m.Name, m.Other)
	case opSwap:
		aside := m.Name + ".aside"
		return errors.Join(d.Rename(m.Name, aside), d.Rename(m.Other, m.Name), d.Rename(aside, m.Other),
			d.SyncDir(path.Dir(m.Name)), d.SyncDir(path.Dir(m.Other)))
	}
	b, err := readWhole(d, m.Name)
	if err != nil {
		return err
	}
	return writeWhole(d, m.Name, m.change(b))
}

// change returns what becomes of a file's bytes.
func (m mutation) change(b []byte) []byte {
	size := int64(len(b))
	from, to := min(m.Off, size), min(m.Off+m.Len, size)
	r := random(m.Seed, 30)
	switch m.Op {
	case opFlipBit:
		b[m.Off] ^= 1 << m.Len
	case opFlipByte:
		b[m.Off] ^= byte(1 + r.IntN(255))
	case opNoise:
		for i := from; i < to; i++ {
			b[i] = byte(r.Uint32())
		}
	case opZero:
		clear(b[from:to])
	case opTruncate:
		b = b[:from]
	case opAppend:
		for range m.Len {
			b = append(b, byte(r.Uint32()))
		}
	}
	return b
}

// drawMutation draws damage to a file or directory of a tree.
func drawMutation(r *rand.Rand, tree []treeFile, f treeFile) mutation {
	m := mutation{Name: f.Name, Seed: r.Uint64()}
	ops := []mutationOp{opFlipBit, opFlipByte, opNoise, opTruncate, opTruncate, opZero, opZero, opAppend, opDelete, opCopy, opSwap}
	switch {
	case f.Dir:
		ops = []mutationOp{opDelete, opCopy, opSwap}
	case f.Size == 0:
		ops = []mutationOp{opAppend, opDelete, opCopy, opSwap}
	}
	m.Op = ops[r.IntN(len(ops))]
	// Most of an active segment is reserved space: what is written counts.
	used := max(f.Used, 1)
	switch m.Op {
	case opFlipBit:
		m.Off, m.Len = r.Int64N(used), r.Int64N(8)
	case opFlipByte:
		m.Off, m.Len = r.Int64N(used), 1
	case opNoise:
		m.Off, m.Len = r.Int64N(used)&^511, 512
	case opTruncate:
		m.Off = []int64{0, r.Int64N(f.Size), r.Int64N(used), max(0, used-1-r.Int64N(16)), max(0, f.Size-1-r.Int64N(16))}[r.IntN(5)]
	case opZero:
		m.Off, m.Len = r.Int64N(used), 1+r.Int64N(600)
		if chance(r, 0.3) {
			m.Off, m.Len = 0, f.Size
		}
	case opAppend:
		m.Off, m.Len = f.Size, 1+r.Int64N(700)
	case opCopy:
		m.Other = drawCopy(r, tree, f)
	case opSwap:
		m.Other = drawOther(r, tree, f)
	}
	if (m.Op == opCopy || m.Op == opSwap) && (m.Other == "" || m.Other == m.Name) {
		m.Op, m.Other = opDelete, ""
	}
	return m
}

// drawOther draws another file of the same kind, "" if there is none.
func drawOther(r *rand.Rand, tree []treeFile, f treeFile) string {
	var same []string
	for _, o := range tree {
		if o.Name != f.Name && kindOf(o.Name, o.Dir) == kindOf(f.Name, f.Dir) {
			same = append(same, o.Name)
		}
	}
	if len(same) == 0 {
		return ""
	}
	return same[r.IntN(len(same))]
}

// drawCopy draws another name that a file of its kind can have, which may be taken.
func drawCopy(r *rand.Rand, tree []treeFile, f treeFile) string {
	dir, base := path.Split(f.Name)
	switch kindOf(f.Name, f.Dir) {
	case kindPartition:
		i := strings.LastIndexByte(base, '-')
		return dir + []string{base[:i] + "-7", "foreign-0", base + ".0-stray", base[:i] + "-x"}[r.IntN(4)]
	case kindMeta, kindTopics:
		return ""
	case kindMetadata:
		return drawOther(r, tree, f)
	case kindRunnel:
		return f.Name + ".new"
	}
	digits := strings.IndexAny(base, "0123456789")
	if digits < 0 {
		return ""
	}
	end := digits
	for end < len(base) && base[end] >= '0' && base[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(base[digits:end], 10, 64)
	if err != nil {
		return ""
	}
	n = max(0, n+[]int64{1, -1, 1 + r.Int64N(100), -r.Int64N(100)}[r.IntN(4)])
	return dir + base[:digits] + fmt.Sprintf("%0*d", end-digits, n) + base[end:]
}

// A treeFile is a file or directory of a disk.
type treeFile struct {
	Name string
	Dir  bool
	Size int64
	Used int64 // without zeros at the end
}

// readTree lists what lies under a directory, which it begins with, and reads the files.
func readTree(d *vfs.Sim, dir string) (tree []treeFile, content map[string][]byte, err error) {
	content = map[string][]byte{}
	tree = append(tree, treeFile{Name: dir, Dir: true})
	infos, err := d.List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range infos {
		name := path.Join(dir, i.Name)
		if i.Dir {
			sub, c, err := readTree(d, name)
			if err != nil {
				return nil, nil, err
			}
			tree = append(tree, sub...)
			for n, b := range c {
				content[n] = b
			}
			continue
		}
		b, err := readWhole(d, name)
		if err != nil {
			return nil, nil, err
		}
		used := len(b)
		for used > 0 && b[used-1] == 0 {
			used--
		}
		tree = append(tree, treeFile{Name: name, Size: i.Size, Used: int64(used)})
		content[name] = b
	}
	return tree, content, nil
}

func readWhole(d *vfs.Sim, name string) ([]byte, error) {
	f, err := d.OpenRead(name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, f.Size())
	if len(b) > 0 {
		_, err = f.ReadAt(b, 0)
	}
	return b, errors.Join(err, f.Close())
}

// writeWhole gives a file other bytes, durably, making it if it is missing.
func writeWhole(d *vfs.Sim, name string, b []byte) error {
	f, err := d.Open(name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = d.Create(name, 0)
	}
	if err != nil {
		return err
	}
	_, werr := f.WriteAt(b, 0)
	return errors.Join(werr, f.Truncate(int64(len(b))), f.Sync(), f.Close(), d.SyncDir(path.Dir(name)))
}

func removeTree(d *vfs.Sim, name string) error {
	info, err := d.Stat(name)
	if err != nil {
		return err
	}
	if info.Dir {
		infos, err := d.List(name)
		if err != nil {
			return err
		}
		for _, i := range infos {
			if err := removeTree(d, path.Join(name, i.Name)); err != nil {
				return err
			}
		}
	}
	return errors.Join(d.Remove(name), d.SyncDir(path.Dir(name)))
}

func copyTree(d *vfs.Sim, from, to string) error {
	info, err := d.Stat(from)
	if err != nil {
		return err
	}
	if !info.Dir {
		b, err := readWhole(d, from)
		if err != nil {
			return err
		}
		return writeWhole(d, to, b)
	}
	infos, err := d.List(from)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Mkdir(to), d.SyncDir(path.Dir(to))); err != nil {
		return err
	}
	for _, i := range infos {
		if err := copyTree(d, path.Join(from, i.Name), path.Join(to, i.Name)); err != nil {
			return err
		}
	}
	return nil
}
