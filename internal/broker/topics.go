package broker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
)

// MaxPartitions is the greatest number of partitions of one topic.
const MaxPartitions = 1_000_000

// Topic is one life of a topic.
type Topic struct {
	info    meta.Topic // but for Partitions and Config
	config  atomic.Pointer[topicConfig]
	parts   atomic.Pointer[[]*Partition]
	deleted atomic.Bool
}

// topicConfig is a topic's settings, as they were given and as they are meant.
type topicConfig struct {
	given map[string]string
	Config
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.info.Name }

// ID identifies this life of the topic.
func (t *Topic) ID() [16]byte { return t.info.ID }

// Config returns the settings that differ from the defaults, by Kafka's names. Not to be changed.
func (t *Topic) Config() map[string]string { return t.config.Load().given }

// Partitions returns the partitions by number. Not to be changed.
func (t *Topic) Partitions() []*Partition { return *t.parts.Load() }

// Deleted reports whether this life of the topic has ended.
func (t *Topic) Deleted() bool { return t.deleted.Load() }

// MaxMessageBytes is the topic's limit for a batch.
func (t *Topic) MaxMessageBytes() int { return t.config.Load().MaxMessageBytes }

// Compacted reports whether the topic keeps the last value of each key: then every record needs one.
func (t *Topic) Compacted() bool { return t.config.Load().Compact }

func (b *Broker) newTopic(info meta.Topic) (*Topic, error) {
	c, err := ParseConfig(info.Config)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", info.Name, err)
	}
	t := &Topic{info: info}
	t.config.Store(&topicConfig{info.Config, c})
	t.grow(b, info.Partitions)
	return t, nil
}

// described is what meta knows of the topic.
func (t *Topic) described() meta.Topic {
	info := t.info
	info.Partitions = len(t.Partitions())
	info.Config = t.Config()
	return info
}

// grow gives the topic total partitions.
func (t *Topic) grow(b *Broker, total int) {
	var ps []*Partition
	if old := t.parts.Load(); old != nil {
		ps = slices.Clone(*old)
	}
	for i := len(ps); i < total; i++ {
		ps = append(ps, newPartition(b, t, int32(i)))
	}
	t.parts.Store(&ps)
}

// Topic returns the topic of that name, or an error that matches kafka.ErrUnknownTopic.
func (b *Broker) Topic(name string) (*Topic, error) {
	b.topics.RLock()
	t := b.topics.byName[name]
	b.topics.RUnlock()
	if t == nil {
		return nil, unknownTopic(name)
	}
	return t, nil
}

// Partition returns a partition, or an error that matches kafka.ErrUnknownTopic.
func (b *Broker) Partition(tp kafka.TopicPartition) (*Partition, error) {
	t, err := b.Topic(tp.Topic)
	if err != nil {
		return nil, err
	}
	ps := t.Partitions()
	if tp.Partition < 0 || int(tp.Partition) >= len(ps) {
		return nil, fmt.Errorf("%w: %s, the topic has %d partitions", kafka.ErrUnknownTopic, tp, len(ps))
	}
	return ps[tp.Partition], nil
}

// Changes counts what was made and deleted: while it stays, so do topics and their partitions.
func (b *Broker) Changes() int64 { return b.topics.changes.Load() }

func (b *Broker) changed() {
	b.topics.changes.Add(1)
	b.topics.watchers.wake()
}

// Watch makes w wake when topics or partitions are made or deleted; Unwatch undoes it.
func (b *Broker) Watch(w *Waiter)   { b.topics.watchers.add(w) }
func (b *Broker) Unwatch(w *Waiter) { b.topics.watchers.remove(w) }

// Topics returns all topics by name.
func (b *Broker) Topics() ([]*Topic, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
	return b.list(), nil
}

func (b *Broker) list() []*Topic {
	b.topics.RLock()
	defer b.topics.RUnlock()
	ts := make([]*Topic, 0, len(b.topics.byName))
	for _, t := range b.topics.byName {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(x, y *Topic) int { return strings.Compare(x.info.Name, y.info.Name) })
	return ts
}

// CreateTopic makes a topic, durably. Names are compared without case.
func (b *Broker) CreateTopic(name string, partitions int, config map[string]string) error {
	if err := kafka.CheckTopicName(name); err != nil {
		return err
	}
	if err := checkPartitions(name, partitions); err != nil {
		return err
	}
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	b.admin.Lock()
	defer b.admin.Unlock()
	for _, t := range b.list() {
		if strings.EqualFold(t.info.Name, name) {
			return fmt.Errorf("%w: %q", kafka.ErrTopicExists, t.info.Name)
		}
	}
	// The new topic takes the old one's key: nothing of the old one may be left that only that key tells of.
	if old, ok := b.topics.deleting[strings.ToLower(name)]; ok {
		if err := b.finishDelete(old); err != nil {
			return fmt.Errorf("finish deleting topic %s: %w", old.Name, kafka.Storage(err))
		}
		delete(b.topics.deleting, strings.ToLower(name))
	}
	info := meta.Topic{Name: name, Partitions: partitions, Config: config, State: meta.Live}
	if _, err := rand.Read(info.ID[:]); err != nil {
		return err
	}
	if _, err := ParseConfig(config); err != nil {
		return fmt.Errorf("topic %s: %w", name, err)
	}
	if err := b.meta.PutTopic(info); err != nil {
		return err
	}
	if err := b.addTopic(info); err != nil {
		return err
	}
	b.clean.now()
	return nil
}

// addTopic makes a topic known that meta knows.
func (b *Broker) addTopic(info meta.Topic) error {
	t, err := b.newTopic(info)
	if err != nil {
		return err
	}
	b.topics.Lock()
	b.topics.byName[info.Name] = t
	b.topics.Unlock()
	b.changed()
	return nil
}

// checkPartitions checks a number of partitions; the name of the last one's directory must be possible.
func checkPartitions(topic string, n int) error {
	if n < 1 || n > MaxPartitions {
		return fmt.Errorf("%w: %d", kafka.ErrInvalidPartitions, n)
	}
	last := kafka.TopicPartition{Topic: topic, Partition: int32(n - 1)}
	if dir := last.String(); vfs.FitName(dir, "") != dir {
		return fmt.Errorf("%w: %d, the topic's name is too long for so many", kafka.ErrInvalidPartitions, n)
	}
	return nil
}

// change calls fn with a topic, and lets nobody else change topics meanwhile.
func (b *Broker) change(name string, fn func(t *Topic) error) error {
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	b.admin.Lock()
	defer b.admin.Unlock()
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	return fn(t)
}

// AddPartitions raises the number of a topic's partitions to total, durably.
func (b *Broker) AddPartitions(name string, total int) error {
	return b.change(name, func(t *Topic) error { return b.addPartitions(t, total) })
}

func (b *Broker) addPartitions(t *Topic, total int) error {
	name := t.Name()
	if have := len(t.Partitions()); total <= have {
		return fmt.Errorf("%w: topic %s has %d partitions, %d asked for", kafka.ErrInvalidPartitions, name, have, total)
	}
	if err := checkPartitions(name, total); err != nil {
		return err
	}
	info := t.described()
	info.Partitions = total
	if err := b.meta.PutTopic(info); err != nil {
		return err
	}
	t.grow(b, total)
	b.changed()
	return nil
}

// DeleteTopic ends a topic: from the moment that its state is durable it is gone for everybody; then its directories are renamed, then removed,
// then its keys dropped. What a crash or an error interrupts is finished by the next Open.
func (b *Broker) DeleteTopic(name string) error { return b.change(name, b.deleteTopic) }

func (b *Broker) deleteTopic(t *Topic) error {
	name := t.Name()
	if err := b.meta.Err(); err != nil {
		return err // nothing has happened yet
	}
	info := t.described()
	info.State = meta.Deleting
	err := b.meta.PutTopic(info)
	// If that failed, the state may be durable all the same: nothing more may be acknowledged in the topic.
	t.deleted.Store(true)
	b.topics.Lock()
	delete(b.topics.byName, name)
	for _, p := range t.Partitions() {
		b.topics.past.add(p)
	}
	b.topics.Unlock()
	b.changed()
	for _, p := range t.Partitions() {
		p.abandon()
	}
	if err != nil {
		b.topics.deleting[strings.ToLower(name)] = info
		return kafka.OutcomeUnknown(err)
	}
	if err := b.finishDelete(info); err != nil {
		b.topics.deleting[strings.ToLower(name)] = info
		return fmt.Errorf("topic %s is deleted, its files are not yet: %w", name, kafka.Storage(err))
	}
	return nil
}

// finishDelete removes the files and keys of a topic in state Deleting. It can be repeated after a crash at any step.
func (b *Broker) finishDelete(info meta.Topic) error {
	fsys, topics := b.o.FS, path.Join(b.o.Dir, dirTopics)
	var doomed []string
	for i := range info.Partitions {
		tp := kafka.TopicPartition{Topic: info.Name, Partition: int32(i)}
		dir := path.Join(topics, tp.String())
		to := path.Join(topics, aside(tp.String(), hex.EncodeToString(info.ID[:]), suffixDelete))
		if err := fsys.Rename(dir, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		doomed = append(doomed, to)
	}
	if err := fsys.SyncDir(topics); err != nil {
		return err
	}
	for _, dir := range doomed {
		if err := removeAll(fsys, dir); err != nil {
			return err
		}
	}
	if err := fsys.SyncDir(topics); err != nil {
		return err
	}
	return b.meta.DropTopic(info)
}

// aside is Kafka's name for a directory that is no partition's any more: <name>.<unique><suffix>, with the name cut short if it must be.
func aside(name, unique, suffix string) string { return vfs.FitName(name, "."+unique+suffix) }

// removeAll removes a directory and the files in it; it may be missing.
func removeAll(fsys vfs.FS, dir string) error {
	infos, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range infos {
		if err := fsys.Remove(path.Join(dir, i.Name)); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// loadTopics reads the topics, finishes deletions and sets aside directories that belong to no topic.
func (b *Broker) loadTopics() error {
	infos, err := b.meta.Topics()
	if err != nil {
		return err
	}
	b.topics.byName, b.topics.deleting = map[string]*Topic{}, map[string]meta.Topic{}
	for _, info := range infos {
		if info.State == meta.Deleting {
			if b.o.ReadOnly {
				continue
			}
			if err := b.finishDelete(info); err != nil {
				return fmt.Errorf("finish deleting topic %s: %w", info.Name, err)
			}
			continue
		}
		t, err := b.newTopic(info)
		if err != nil {
			return err
		}
		b.topics.byName[info.Name] = t
	}
	b.topics.changes.Store(1) // what is there from the beginning is older than every group's first member
	if b.o.ReadOnly {
		return nil
	}
	return b.setAsideStrays()
}

func (b *Broker) setAsideStrays() error {
	topics := path.Join(b.o.Dir, dirTopics)
	infos, err := b.o.FS.List(topics)
	if err != nil {
		return err
	}
	for _, i := range infos {
		if !i.Dir || strings.HasSuffix(i.Name, suffixStray) {
			continue
		}
		if strings.HasSuffix(i.Name, suffixDelete) {
			// Its topic's keys are gone, or loadTopics would have removed it: a crash kept the directory.
			if err := removeAll(b.o.FS, path.Join(topics, i.Name)); err != nil {
				return err
			}
			continue
		}
		if _, err := b.Partition(parseDir(i.Name)); err != nil {
			if err := b.setAside(i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseDir is the inverse of TopicPartition.String; a name that is none gives a topic that cannot be.
func parseDir(name string) kafka.TopicPartition {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return kafka.TopicPartition{}
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil {
		return kafka.TopicPartition{}
	}
	tp := kafka.TopicPartition{Topic: name[:i], Partition: int32(n)}
	if tp.String() != name {
		return kafka.TopicPartition{}
	}
	return tp
}

// setAside renames a directory that is not ours, so that nothing of it is used and nothing of it is lost.
func (b *Broker) setAside(name string) error {
	topics := path.Join(b.o.Dir, dirTopics)
	from := path.Join(topics, name)
	for i := 0; ; i++ {
		to := path.Join(topics, aside(name, strconv.Itoa(i), suffixStray))
		if _, err := b.o.FS.Stat(to); err == nil {
			continue
		}
		if err := b.o.FS.Rename(from, to); err != nil {
			return err
		}
		b.o.Logger.Warn("directory belongs to no topic, set aside", "from", from, "to", to)
		if b.o.Events.StrayDirectory != nil {
			b.o.Events.StrayDirectory(from, to)
		}
		return b.o.FS.SyncDir(topics)
	}
}
