package broker

import "time"

// Counts is what the engine has done since it was opened, in all partitions.
type Counts struct {
	Topics, Partitions      int
	Batches, Records, Bytes int64 // appended
	Syncs                   int64 // of segment files
	SyncTime                time.Duration
	Clamped                 int64 // offsets behind a log's end; see Broker.Clamped
}

// add adds what has been done in a partition.
func (c *Counts) add(p *Partition) {
	c.Batches += p.counts.Batches.Load()
	c.Records += p.counts.Records.Load()
	c.Bytes += p.counts.Bytes.Load()
	c.Syncs += p.counts.Syncs.Load()
	c.SyncTime += time.Duration(p.counts.SyncNanos.Load())
}

// Counts sums up.
func (b *Broker) Counts() Counts {
	b.topics.RLock()
	defer b.topics.RUnlock()
	c := b.topics.past
	c.Clamped = b.clamped.Load()
	c.Topics = len(b.topics.byName)
	for _, t := range b.topics.byName {
		ps := t.Partitions()
		c.Partitions += len(ps)
		for _, p := range ps {
			c.add(p)
		}
	}
	return c
}
