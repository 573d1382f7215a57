package main

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// commitLog is the least that a log does for AcksSynced: whoever comes first writes what has gathered while the write before was under way, one batch in
// one write, and syncs it for all who wait.
type commitLog struct {
	f    *os.File
	open struct {
		sync.Mutex
		*gathering // nil: nobody waits
	}
	write struct {
		sync.Mutex
		at   int64 // where the next batch goes
		base int64 // its first offset
	}
}

// A gathering is the records that go in one write. base and err are set before done is closed.
type gathering struct {
	batch []byte
	count int
	base  int64
	err   error
	done  chan struct{}
}

// AppendOne returns when the record is synced.
func (l *commitLog) AppendOne(key, value []byte) (int64, error) {
	l.open.Lock()
	g, first := l.open.gathering, false
	if g == nil {
		g, first = &gathering{done: make(chan struct{})}, true
		l.open.gathering = g
	}
	mine := int64(g.count)
	g.add(key, value)
	l.open.Unlock()
	if first {
		l.commit(g)
	} else {
		<-g.done
	}
	return g.base + mine, g.err
}

func (g *gathering) add(key, value []byte) {
	at := max(len(g.batch), batchHeader)
	if most := at + recordBound(len(key)+len(value)); cap(g.batch) < most {
		grown := make([]byte, at, max(2*most, batchTarget))
		copy(grown, g.batch)
		g.batch = grown
	}
	g.batch = g.batch[:putRecord(g.batch[:cap(g.batch)], at, g.count, key, value)]
	g.count++
}

func (l *commitLog) commit(g *gathering) {
	w := &l.write
	w.Lock()
	l.wait(g)
	g.base = w.base
	seal(g.batch, g.base, g.count, time.Now().UnixMilli())
	if _, g.err = l.f.WriteAt(g.batch, w.at); g.err == nil {
		g.err = datasync(l.f)
	}
	w.at += int64(len(g.batch))
	w.base += int64(g.count)
	w.Unlock()
	close(g.done)
}

// wait lets those come that the write before has woken, for as long as yielding brings some, and ends the gathering. A leader who did not would sync for himself and a
// few, and the others would wait for two syncs: that is a third slower.
func (l *commitLog) wait(g *gathering) {
	for before := 0; ; {
		l.open.Lock()
		count := g.count
		if count == before {
			l.open.gathering = nil // whoever comes now begins the next one
		}
		l.open.Unlock()
		if count == before {
			return
		}
		before = count
		runtime.Gosched()
	}
}
