package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/internal/wheel"
)

// A broker that is read only takes no lock and writes no byte. The metadata store is a copy in memory, so that opening it changes nothing; beside somebody who has the directory
// locked there is no such copy, and the topics are what their directories say.

// anyEpoch is the leader epoch up to which a log that is read only believes its batches.
const anyEpoch = math.MaxInt32

// copyTries is how often the metadata is copied, since somebody may have written it meanwhile.
const copyTries = 3

func openReadOnly(o Options) (_ *Broker, err error) {
	b := newBroker(o)
	b.o.FS = vfs.ReadOnly(o.FS)
	made, err := o.runnelIsMade()
	if err != nil {
		return nil, err
	}
	ground := vfs.NewMemory()
	b.lock = ground // to be closed at the end
	defer func() {
		if err != nil {
			b.closed.Store(true)
			b.life.closed = true
			err = errors.Join(err, b.abort())
		}
	}()
	b.wheel = wheel.New(wheel.Options{OnPanic: func(v any) { o.Logger.Error("timer panicked", "panic", v) }})
	b.heal = newHealer(b.wheel, b.healMeta)
	if made {
		b.meta, err = o.copyMeta(ground, b.heal.need)
	}
	if errors.Is(err, kafka.ErrLocked) {
		b.foreign, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	if b.meta == nil {
		if b.meta, err = emptyMeta(ground, b.heal.need); err != nil {
			return nil, err
		}
	}
	b.ids = b.meta.ProducerIDs()
	b.epoch.Store(anyEpoch)
	b.flush.start(b)
	b.clean.start(b)
	if b.foreign {
		if err := b.findTopics(); err != nil {
			return nil, err
		}
	}
	if err := b.loadTopics(); err != nil {
		return nil, err
	}
	b.groups, err = b.newCoordinator()
	return b, err
}

// runnelIsMade looks at RUNNEL without making it.
func (o *Options) runnelIsMade() (bool, error) {
	text, err := readText(o.FS, path.Join(o.Dir, fileRunnel))
	if err != nil {
		return false, fmt.Errorf("read only: %w", err)
	}
	made, known, err := parseRunnel(text)
	if err == nil && !known {
		err = fmt.Errorf("%w: %s is damaged", kafka.ErrCorrupt, fileRunnel)
	}
	return made, err
}

const dirCopy = "/meta"

func emptyMeta(ground vfs.FS, trouble func()) (*meta.Store, error) {
	if err := ground.Mkdir(dirCopy + ".empty"); err != nil {
		return nil, err
	}
	return meta.Open(meta.Options{FS: ground, Dir: dirCopy + ".empty", Create: true, Ballast: "/" + fileBallast, Trouble: trouble})
}

// copyMeta opens a copy of the metadata store; kafka.ErrLocked if somebody has the directory locked.
func (o *Options) copyMeta(ground vfs.FS, trouble func()) (s *meta.Store, err error) {
	for i := range copyTries {
		held, pid, lerr := o.FS.Locked(path.Join(o.Dir, fileLock))
		if lerr != nil {
			return nil, lerr
		}
		if held {
			return nil, fmt.Errorf("%w by process %d", kafka.ErrLocked, pid)
		}
		dir := fmt.Sprint(dirCopy, i)
		if err = copyDir(ground, dir, o.FS, o.metaDir()); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s is there, but the metadata in %s is missing: %w", kafka.ErrCorrupt, fileRunnel, dirMeta, err)
		}
		if err != nil {
			continue
		}
		if s, err = meta.Open(meta.Options{FS: ground, Dir: dir, Ballast: "/" + fileBallast, Trouble: trouble}); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func copyDir(dst vfs.FS, to string, src vfs.FS, from string) error {
	infos, err := src.List(from)
	if err != nil {
		return err
	}
	if err := dst.Mkdir(to); err != nil {
		return err
	}
	for _, i := range infos {
		if err := copyFile(dst, path.Join(to, i.Name), src, path.Join(from, i.Name)); err != nil && !i.Dir {
			return err
		}
	}
	return nil
}

func copyFile(dst vfs.FS, to string, src vfs.FS, from string) (err error) {
	in, err := src.OpenRead(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := dst.Create(to, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	b := make([]byte, in.Size())
	n, err := in.ReadAt(b, 0)
	if n < len(b) {
		return err
	}
	_, err = out.WriteAt(b, 0)
	return err
}

// findTopics puts into the empty store what the partitions' directories say.
func (b *Broker) findTopics() error {
	topics := path.Join(b.o.Dir, dirTopics)
	infos, err := b.o.FS.List(topics)
	if err != nil {
		return err
	}
	found := map[string]meta.Topic{}
	for _, i := range infos {
		tp := parseDir(i.Name)
		if tp.Topic == "" {
			continue
		}
		text, err := rlog.Metadata(b.o.FS, path.Join(topics, i.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // nothing has been appended to it yet
		}
		if err != nil {
			return err
		}
		t := found[tp.Topic]
		if t.ID, err = meta.ParseTopicID(text); err != nil {
			return err
		}
		t.Name, t.State = tp.Topic, meta.Live
		t.Partitions = max(t.Partitions, int(tp.Partition)+1)
		found[tp.Topic] = t
	}
	for _, t := range found {
		if err := b.meta.PutTopic(t); err != nil {
			return err
		}
	}
	return nil
}

// enterToChange is enter for calls that change something.
func (b *Broker) enterToChange() error {
	if b.o.ReadOnly {
		return kafka.ErrReadOnly
	}
	return b.enter()
}

// lookAgain is the time after which a log that is read only is looked at again, for what somebody else has appended.
const lookAgain = 10 * time.Millisecond

// refresh looks for what somebody else has done to a log that is read only. An error shows when the log is read.
func (f *Life) refresh() {
	if !f.p.b.o.ReadOnly {
		return
	}
	now := time.Now().UnixNano()
	if last := f.looked.Load(); now-last < int64(lookAgain) || !f.looked.CompareAndSwap(last, now) {
		return
	}
	if err := f.l.Refresh(); err != nil {
		f.p.b.o.Logger.Warn("look at what was appended", "partition", f.p.tp, "error", err)
	}
}
