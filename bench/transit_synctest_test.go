package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A parcel is a record in a link of the tests.
type parcel struct {
	key, value []byte
	offset     int64
	sent       time.Time
}

// testLink is a link whose reader has every record in hand so long after it was sent. change may do something to what was sent.
func testLink(delay time.Duration, change func(p parcel) []parcel) link {
	ch := make(chan parcel, 1000)
	next := int64(0)
	return link{
		send: func(key, value []byte) (int64, error) {
			for _, p := range change(parcel{slices.Clone(key), slices.Clone(value), next, time.Now()}) {
				ch <- p
			}
			next++
			return next - 1, nil
		},
		close: func() { close(ch) },
		receive: func(_ context.Context, t *transit) error {
			for p := range ch {
				if d := time.Until(p.sent.Add(delay)); d > 0 {
					<-time.After(d)
				}
				if err := t.arrived(time.Now(), p.key, p.value, p.offset); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func unchanged(p parcel) []parcel { return []parcel{p} }

// Times are those from the sending of each record to its arrival, the warm ones apart; records are sent at the pace.
func TestTransit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, delay = 10 * 50, 7 * time.Millisecond
		tr := newTransit(newGenerator(100), 20, n)
		taken, err := tr.run(t.Context(), testLink(delay, func(p parcel) []parcel {
			if p.offset < 20 {
				p.sent = p.sent.Add(time.Hour) // a slow start
			}
			return []parcel{p}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if taken.p50 != delay || taken.p99 != delay {
			t.Errorf("p50 %v, p99 %v, want %v", taken.p50, taken.p99, delay)
		}
		if got, want := taken.seconds, (9*tick + delay).Seconds(); got != want {
			t.Errorf("%v seconds, want %v", got, want)
		}
	})
}

// A sender that was kept for a while sends what has become due meanwhile: the pace is that of the records, and not of what was managed.
func TestTransitCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransit(newGenerator(100), 1, 10*50)
		taken, err := tr.run(t.Context(), testLink(0, func(p parcel) []parcel {
			if p.offset == 120 {
				<-time.After(5 * tick)
			}
			return []parcel{p}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := taken.seconds, (9 * tick).Seconds(); got != want {
			t.Errorf("%v seconds, want %v", got, want)
		}
	})
}

// A record that is lost, doubled, changed or made up on its way is noticed, whatever the link, and ends the run.
func TestFaultyLinkIsNoticed(t *testing.T) {
	const n = 200
	var key [keySize]byte
	g := newGenerator(100)
	g.key(&key, 0, n)
	behind := parcel{key[:], g.value(0, n), n, time.Time{}}
	for name, change := range map[string]func(p parcel) []parcel{
		"lost":      func(p parcel) []parcel { return nil },
		"doubled":   func(p parcel) []parcel { return []parcel{p, p} },
		"changed":   func(p parcel) []parcel { p.value[3] ^= 1; return []parcel{p} },
		"renamed":   func(p parcel) []parcel { p.key[15] ^= 1; return []parcel{p} },
		"one more":  func(p parcel) []parcel { return []parcel{p, behind} },
		"misplaced": func(p parcel) []parcel { p.offset++; return []parcel{p} },
	} {
		for _, at := range []int64{0, 77, n - 1} {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransit(newGenerator(100), 10, n-10)
				_, err := tr.run(t.Context(), testLink(0, func(p parcel) []parcel {
					if p.offset == at {
						return change(p)
					}
					return unchanged(p)
				}))
				t.Logf("%s, %d: %v", name, at, err)
				if err == nil {
					t.Errorf("%s, %d: not noticed", name, at)
				}
			})
		}
	}
}

// A sender or a reader that fails ends the other.
func TestTransitFails(t *testing.T) {
	failed := errors.New("failed")
	for name, wrong := range map[string]func(l *link){
		"the sender": func(l *link) {
			l.send = func([]byte, []byte) (int64, error) { return 0, failed }
		},
		"the sender, later": func(l *link) {
			send := l.send
			l.send = func(key, value []byte) (int64, error) {
				if offset, err := send(key, value); offset < 90 || err != nil {
					return offset, err
				}
				return 0, failed
			}
		},
		"the sender, and only that ends the reader": func(l *link) {
			l.send = func([]byte, []byte) (int64, error) { return 0, failed }
			l.receive = func(ctx context.Context, _ *transit) error {
				<-ctx.Done()
				return nil
			}
		},
		"the reader": func(l *link) {
			l.receive = func(context.Context, *transit) error { return failed }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := testLink(0, unchanged)
			wrong(&l)
			if _, err := newTransit(newGenerator(100), 10, 190).run(t.Context(), l); !errors.Is(err, failed) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
