package main

import (
	"encoding/binary"
	"math/rand/v2"
)

// keySize is the size of every key: the record's number, its lane, and a mix of both.
const keySize = 16

// valuesSize is about how many bytes of values a generator keeps: they fit into a second-level cache.
const valuesSize = 384 << 10

// A generator makes records that depend on nothing but their lane and number, so that whoever reads them back can compute what they have to be. A lane is
// the row of records of one sender. A generator is read-only.
type generator struct {
	size   int // of a value
	values [][]byte
}

// newGenerator returns a generator of text-like values of the given size.
func newGenerator(size int) *generator {
	count := 1
	for count*size < valuesSize {
		count *= 2
	}
	r := rand.New(rand.NewPCG(20, 26))
	g := &generator{size: size, values: make([][]byte, count)}
	slab := make([]byte, count*size)
	for i := range g.values {
		v := slab[i*size : (i+1)*size : (i+1)*size]
		fillText(v, r)
		g.values[i] = v
	}
	return g
}

var fields = []string{`"customer":"`, `"article":"`, `"station":"`, `"status":"open","ref":"`, `"price":"`, `"received":"`, `"note":"as before","by":"`}

// fillText fills v with fields of known names and random content: compressors halve it.
func fillText(v []byte, r *rand.Rand) {
	const content = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for at := 0; at < len(v); {
		at += copy(v[at:], fields[r.IntN(len(fields))])
		for range 8 + r.IntN(16) {
			if at < len(v) {
				v[at] = content[r.IntN(len(content))]
				at++
			}
		}
		at += copy(v[at:], `",`)
	}
}

// key stores the key of a lane's record number i in k.
func (g *generator) key(k *[keySize]byte, lane, i int) {
	binary.BigEndian.PutUint64(k[:], uint64(i))
	binary.BigEndian.PutUint32(k[8:], uint32(lane))
	binary.BigEndian.PutUint32(k[12:], (uint32(i)+uint32(lane)*977)*2654435761)
}

// value returns the value of a lane's record number i, which is shared: nobody may change it.
func (g *generator) value(lane, i int) []byte {
	return g.values[(i+lane*17)&(len(g.values)-1)]
}

// origin returns what a key says of its lane and number.
func origin(key []byte) (lane, i int, ok bool) {
	if len(key) != keySize {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(key[8:])), int(binary.BigEndian.Uint64(key)), true
}
