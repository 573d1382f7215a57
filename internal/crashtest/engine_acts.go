package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/runnelmq/runnel/stream"
)

func (h *engineHistory) create(ctx context.Context, w *engineWant) error {
	return h.createNamed(ctx, w, fmt.Sprintf("topic-%d", h.r.IntN(4)))
}

func (h *engineHistory) createNamed(ctx context.Context, w *engineWant, name string) error {
	n := between(h.r, 1, 3)
	config := maps.Clone(policies[h.r.IntN(len(policies))])
	config["segment.bytes"] = fmt.Sprint(between(h.r, 1, 8) << 10)
	c := stream.TopicConfig{Partitions: n, Config: config}
	if _, there := w.Topics[name]; there {
		if err := h.life.eng.Admin().CreateTopic(ctx, name, c); !errors.Is(err, stream.ErrTopicExists) {
			return fmt.Errorf("A10: %s was made twice: %w", name, err)
		}
		return nil
	}
	h.topics++
	t := topicWant{Life: h.topics, Asked: n, Parts: newParts(n)}
	t.follow(config)
	h.update(func(w *engineWant) { w.Topics[name] = t })
	if err := h.life.eng.Admin().CreateTopic(ctx, name, c); err != nil {
		return err
	}
	t.Partitions, t.Asked = n, 0
	h.update(func(w *engineWant) { w.Topics[name] = t })
	return nil
}

func (h *engineHistory) delete(ctx context.Context, w *engineWant) error {
	names := w.names()
	return h.deleteNamed(ctx, names[h.r.IntN(len(names))])
}

func (h *engineHistory) deleteNamed(ctx context.Context, name string) error {
	h.update(func(w *engineWant) {
		t := w.Topics[name]
		t.Deleting = true
		w.Topics[name] = t
	})
	if err := h.life.eng.Admin().DeleteTopic(ctx, name); err != nil {
		return err
	}
	h.update(func(w *engineWant) { delete(w.Topics, name) })
	return nil
}

// again deletes a topic and makes another one with its name.
func (h *engineHistory) again(ctx context.Context, w *engineWant) error {
	names := w.names()
	name := names[h.r.IntN(len(names))]
	if err := h.deleteNamed(ctx, name); err != nil {
		return err
	}
	now := h.image()
	return h.createNamed(ctx, &now, name)
}

func (h *engineHistory) grow(ctx context.Context, w *engineWant) error {
	names := w.names()
	name := names[h.r.IntN(len(names))]
	t := w.Topics[name]
	n := t.Partitions + 1
	if n > 4 {
		return nil
	}
	t.Asked = n
	t.Parts = append(t.Parts, newParts(1)...)
	h.update(func(w *engineWant) { w.Topics[name] = t })
	if err := h.life.eng.Admin().AddPartitions(ctx, name, n); err != nil {
		return err
	}
	t.Partitions, t.Asked = n, 0
	h.update(func(w *engineWant) { w.Topics[name] = t })
	return nil
}

// sending adds records that are about to be sent, and returns the offsets that they have to get.
func (h *engineHistory) sending(tps []stream.TopicPartition, ss []sentRecord) (offsets []int64) {
	h.stats.Records += len(ss)
	h.update(func(w *engineWant) {
		for i, tp := range tps {
			p := w.part(tp)
			offsets = append(offsets, int64(len(p.Sent)))
			p.Sent = append(p.Sent, ss[i])
		}
	})
	return offsets
}

func (h *engineHistory) received(tp stream.TopicPartition, offset int64, acks stream.Acks, rc stream.Receipt) (err error) {
	h.update(func(w *engineWant) {
		if err = w.receipt(tp, offset, acks, rc); err == nil {
			w.ack(tp, rc)
		}
	})
	return err
}

// draw makes a record for a partition. Keys are few, so that they come again.
func (h *engineHistory) draw(tp stream.TopicPartition, largest int) sentRecord {
	s := sentRecord{}
	if chance(h.r, 0.85) {
		s.Value = fill(h.r, h.r.IntN(largest))
	}
	h.mu.Lock()
	compacts := h.mu.want.Topics[tp.Topic].Compacts
	h.mu.Unlock()
	if compacts || chance(h.r, 0.4) {
		s.Key = bytes.Repeat([]byte{byte(h.r.IntN(8))}, h.r.IntN(3)*7+1)
	}
	return s
}

func (h *engineHistory) drawAcks() stream.Acks {
	if chance(h.r, 0.4) {
		return stream.AcksSynced
	}
	return stream.AcksWritten
}

// orNone sometimes asks for no acknowledgement instead.
func (h *engineHistory) orNone(a stream.Acks) stream.Acks {
	if chance(h.r, 0.1) {
		return stream.AcksNone
	}
	return a
}

func (h *engineHistory) produce(ctx context.Context, tp stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	s, acks := h.draw(tp, 3000), h.orNone(h.drawAcks())
	offset := h.sending([]stream.TopicPartition{tp}, []sentRecord{s})[0]
	rc, err := p.ProduceSync(ctx, s.record(tp, acks))
	if err != nil {
		return err
	}
	return h.received(tp, offset, acks, rc)
}

func (h *engineHistory) several(tps []stream.TopicPartition) (at []stream.TopicPartition, ss []sentRecord, rs []stream.Record, acks []stream.Acks, offsets []int64) {
	for range between(h.r, 1, 30) {
		tp, a := tps[h.r.IntN(len(tps))], h.drawAcks()
		s := h.draw(tp, 400)
		if chance(h.r, 0.7) {
			a = stream.AcksWritten
		}
		a = h.orNone(a)
		at, ss, acks = append(at, tp), append(ss, s), append(acks, a)
		rs = append(rs, *s.record(tp, a))
	}
	return at, ss, rs, acks, h.sending(at, ss)
}

func (h *engineHistory) produceAll(ctx context.Context, tps []stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	at, _, rs, acks, offsets := h.several(tps)
	out, err := p.ProduceAll(ctx, rs, nil)
	if err != nil || len(out) != len(rs) {
		return fmt.Errorf("A1: %d results for %d records, error %v", len(out), len(rs), err)
	}
	for i, res := range out {
		if err := errors.Join(res.Err, h.received(at[i], offsets[i], acks[i], res.Receipt)); err != nil {
			return err
		}
	}
	return nil
}

func (h *engineHistory) produceAsync(ctx context.Context, tps []stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	at, _, rs, acks, offsets := h.several(tps)
	var mu sync.Mutex
	var errs []error
	promised := 0
	for i := range rs {
		p.Produce(ctx, &rs[i], func(rc stream.Receipt, err error) {
			if err == nil {
				err = h.received(at[i], offsets[i], acks[i], rc)
			}
			mu.Lock()
			defer mu.Unlock()
			promised++
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	err = p.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if err == nil && promised != len(rs) {
		err = fmt.Errorf("A1: %d of %d promises had run when Flush returned", promised, len(rs))
	}
	return errors.Join(append(errs, err)...)
}

// produceNamed sends a few records of a named producer, and some of them again. (C1)
func (h *engineHistory) produceNamed(ctx context.Context, tp stream.TopicPartition) error {
	name := engineNames[h.r.IntN(len(engineNames))]
	p, err := h.life.producer(ctx, name)
	if err != nil {
		return err
	}
	w := h.image()
	last := w.part(tp).last(name, int64(len(w.part(tp).Sent)))
	is, err := p.LastSequence(ctx, tp)
	if err != nil || is != last {
		return fmt.Errorf("C1: last sequence of %s in %v is %d, sent was %d, error %v", name, tp, is, last, err)
	}
	for range between(h.r, 1, 5) {
		acks := h.drawAcks()
		if chance(h.r, 0.2) && last > 0 {
			s := sentRecord{Name: name, Sequence: 1 + h.r.Int64N(last), Key: []byte("k")}
			rc, err := p.ProduceSync(ctx, s.record(tp, acks))
			if err != nil || !rc.Duplicate {
				return fmt.Errorf("C1: sequence %d of %s in %v, which is at %d, got %+v, error %v", s.Sequence, name, tp, last, rc, err)
			}
			if acks == stream.AcksSynced {
				// The answer that it is there already has the strength of an acknowledgement.
				h.update(func(w *engineWant) {
					p := w.part(tp)
					for i, o := range p.Sent {
						if o.Name == name && o.Sequence >= s.Sequence {
							p.Synced = max(p.Synced, int64(i+1))
							break
						}
					}
				})
			}
			continue
		}
		s := h.draw(tp, 500)
		s.Name = name
		last += int64(between(h.r, 1, []int{1, 3}[h.r.IntN(2)]))
		s.Sequence = last
		offset := h.sending([]stream.TopicPartition{tp}, []sentRecord{s})[0]
		rc, err := p.ProduceSync(ctx, s.record(tp, acks))
		if err != nil {
			return err
		}
		if err := h.received(tp, offset, acks, rc); err != nil {
			return err
		}
	}
	return nil
}

// consume reads on from the committed offsets and commits. (E3)
func (h *engineHistory) consume(ctx context.Context, tps []stream.TopicPartition) (err error) {
	c, err := h.life.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := c.Assign(tps...); err != nil {
		return err
	}
	for range between(h.r, 1, 3) {
		o := stream.Offsets{}
		explicit := chance(h.r, 0.2)
		if explicit {
			tp := tps[h.r.IntN(len(tps))]
			w := h.image()
			o[tp] = stream.OffsetMetadata{Offset: h.r.Int64N(int64(len(w.part(tp).Sent)) + 1), LeaderEpoch: -1}
		} else {
			rs, err := c.Poll(ctx, between(h.r, 1, 40))
			if err != nil {
				return fmt.Errorf("A4: poll: %w", err)
			}
			w := h.image()
			for _, r := range rs {
				tp := stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
				if p := w.part(tp); r.Offset >= int64(len(p.Sent)) {
					return fmt.Errorf("A4: offset %d in %v, where %d records have been sent", r.Offset, tp, len(p.Sent))
				} else if err := p.Sent[r.Offset].matches(&r); err != nil {
					return fmt.Errorf("A4: offset %d of %v: %w", r.Offset, tp, err)
				}
			}
			if len(rs) == 0 {
				continue
			}
			// As in Kafka, a commit covers the position of every assigned partition that has one.
			for _, tp := range tps {
				at, err := c.Position(tp)
				if err != nil {
					return fmt.Errorf("E3: position: %w", err)
				}
				o[tp] = stream.OffsetMetadata{Offset: at}
			}
		}
		h.update(func(w *engineWant) {
			for tp, at := range o {
				w.part(tp).Asked = at.Offset
			}
		})
		if explicit {
			err = c.CommitOffsets(ctx, o)
		} else {
			err = c.Commit(ctx)
		}
		if err != nil {
			return fmt.Errorf("E3: commit: %w", err)
		}
		is, err := c.Committed(ctx, tps...)
		if err != nil {
			return fmt.Errorf("E3: committed: %w", err)
		}
		for tp, at := range o {
			if got, ok := is[tp]; ok && got.Offset != at.Offset || !ok && at.Offset > 0 {
				return fmt.Errorf("E3: %d was committed in %v, committed is %+v (%t)", at.Offset, tp, got, ok)
			} else if !ok {
				delete(o, tp)
			}
		}
		h.update(func(w *engineWant) {
			for tp, at := range o {
				p := w.part(tp)
				p.Commit, p.Asked = at.Offset, -1
				p.Synced = max(p.Synced, at.Offset)
			}
		})
	}
	return nil
}
