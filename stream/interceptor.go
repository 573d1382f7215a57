package stream

import (
	"slices"

	"github.com/runnelmq/runnel/internal/broker"
)

// ProducerInterceptor sees a producer's records on their way (interceptor.classes). It is called by all goroutines that produce, and by the one that runs promises. A panic in it is contained and
// logged; the record goes on.
type ProducerInterceptor interface {
	// OnSend is called before the partition is chosen. r is a copy of the caller's record that may be changed; the bytes that it points to may not.
	OnSend(r *Record)
	// OnAcknowledgement is called with what became of a record, before its promise, or before the call returns.
	OnAcknowledgement(r Receipt, err error)
}

// ConsumerInterceptor sees a consumer's records and commits on their way (interceptor.classes). A panic in it is contained and logged.
type ConsumerInterceptor interface {
	// OnConsume is called by the goroutine that polls with the records that a poll is about to return, or Records and Batches about to yield. They may be changed, but not the bytes that
	// they point to; automatic commits cover what was read.
	OnConsume(rs []Record)
	// OnCommit is called with offsets that have been committed.
	OnCommit(o Offsets)
}

// shown is what the interceptors make of records that a loop is about to yield: the position follows the records themselves.
func (c *consumer) shown(rs []Record) []Record {
	if len(rs) == 0 || len(c.c.Interceptors) == 0 {
		return rs
	}
	rs = slices.Clone(rs)
	c.consumed(rs)
	return rs
}

// consumed tells the interceptors of records.
func (c *consumer) consumed(rs []Record) {
	for _, i := range c.c.Interceptors {
		c.e.contained(func() { i.OnConsume(rs) })
	}
}

// committed tells the interceptors of a commit.
func (c *consumer) committed(cs []broker.Commit) {
	if len(c.c.Interceptors) == 0 {
		return
	}
	o := offsetsOf(cs)
	for _, i := range c.c.Interceptors {
		c.e.contained(func() { i.OnCommit(o) })
	}
}

// intercepted is the record that is sent in place of r.
func (p *producer) intercepted(r *Record) *Record {
	if len(p.c.Interceptors) == 0 {
		return r
	}
	own := *r
	for _, i := range p.c.Interceptors {
		p.e.contained(func() { i.OnSend(&own) })
	}
	return &own
}

// acknowledged tells the interceptors what became of a record.
func (p *producer) acknowledged(rec Receipt, err error) {
	for _, i := range p.c.Interceptors {
		p.e.contained(func() { i.OnAcknowledgement(rec, err) })
	}
}

func (e *Engine) contained(fn func()) {
	defer func() {
		if v := recover(); v != nil {
			e.o.Logger.Error("interceptor panicked", "panic", v)
		}
	}()
	fn()
}
