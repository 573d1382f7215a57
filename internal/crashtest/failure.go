package crashtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
)

// A Failure is a promise that was broken, with what it takes to see that again.
type Failure struct {
	Seed  uint64 // of the history: a campaign that begins with it fails in its first history
	Where string // which operation, and what was cut how
	Image string // file with the disk and what it had to hold, for the replay functions; "" if there is none
	Err   error  // begins with the number of the invariant
}

func (f *Failure) Error() string {
	s := fmt.Sprintf("seed %d: %s: %v", f.Seed, f.Where, f.Err)
	if f.Image != "" {
		s += "\nimage: " + f.Image
	}
	return s
}

// Unwrap returns what is wrong.
func (f *Failure) Unwrap() error { return f.Err }

// contain turns a panic of the code under test into an error, so that it is reported with its seed.
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// where puts a place before the place of a failure inside an image, so that the way there reads from the outside in.
func where(place string, seed uint64, err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return &Failure{Seed: seed, Where: place + "; then " + f.Where, Image: f.Image, Err: f.Err}
	}
	return &Failure{Seed: seed, Where: place, Err: err}
}

// random returns a source that depends on nothing but its two numbers.
func random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// between returns a number from lo to hi, both included.
func between(r *rand.Rand, lo, hi int) int { return lo + r.IntN(hi-lo+1) }

// fill returns n bytes: mostly noise, now and then zeros, which a lost sector looks like too.
func fill(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	if chance(r, 0.05) {
		return p
	}
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			p[j] = byte(v)
			v >>= 8
		}
	}
	return p
}
