package stream_test

import (
	"math"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// Golden values of org.apache.kafka.common.utils.Utils.murmur2, of kafka-clients 4.4.0. Of 2^31-1 partitions, the partition is the hash without its sign.
func TestKeysGoWhereKafkaSendsThem(t *testing.T) {
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc":                                    479470107,
		"":                                       275646681,
		"kafka":                                  -798503068,
		"4":                                      1514888353,
		"34":                                     -2026295078,
		"234":                                    -406844982,
		"1234":                                   -1614185708,
		"giberish123456789":                      -1890243828,
		"PreAmbleWillBeRemoved,ThePrePartThatIs": 2017611548,
		"äöü":                                    -2070914556,
		"\x00":                                   375494588,
		"\uffff":                                 2143854725,
		"\xff":                                   -311467685,
		"\xff\xee":                               1750061758,
		"\xff\xee\xdd":                           2053089151,
		"\xff\xee\xdd\xcc":                       705638213,
		"\xff\xee\xdd\xcc\xbb":                   -435349888,
		"\xff\xee\xdd\xcc\xbb\xaa":               -1576922666,
		"\xff\xee\xdd\xcc\xbb\xaa\x99":           -1046235303,
		"\xff\xee\xdd\xcc\xbb\xaa\x99\x88":       -809053009,
		"\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77":   -1660089088,
	} {
		for _, partitions := range []int32{1, 2, 3, 4, 7, 16, 1000, math.MaxInt32} {
			want := (hash & math.MaxInt32) % partitions
			if got := stream.KeyPartitioner().Partition(&stream.Record{Key: []byte(key)}, int(partitions)); got != want {
				t.Errorf("%s of %d: %d, want %d", key, partitions, got, want)
			}
		}
	}
}

func TestRecordsWithoutAKeyStickAndMoveOn(t *testing.T) {
	p := stream.KeyPartitioner()
	runs, last, seen := 0, int32(-1), map[int32]int{}
	for range 4000 {
		n := p.Partition(&stream.Record{Value: make([]byte, 999)}, 4)
		if n != last {
			runs++
		}
		last = n
		seen[n]++
	}
	// 4 MB in runs of about 16 KiB.
	if runs < 200 || runs > 300 {
		t.Fatalf("%d runs", runs)
	}
	for n := range int32(4) {
		if seen[n] < 900 || seen[n] > 1100 {
			t.Fatalf("partition %d has %d of 4000", n, seen[n])
		}
	}
	// An empty key is a key.
	empty := p.Partition(&stream.Record{Key: []byte{}}, 1000)
	for range 100 {
		eq(t, "empty key", p.Partition(&stream.Record{Key: []byte{}, Value: make([]byte, 9999)}, 1000), empty)
	}
}

func TestPartitionersReadWhatTheySayTheyRead(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 4)
	// Partition is for ManualPartitioner only.
	p := newProducer(t, eng, stream.ProducerConfig{})
	rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: []byte("21"), Partition: 99}))(t)
	eq(t, "partition", rec.Partition, int32((int64(-973932308)&math.MaxInt32)%4))
	p = newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.RoundRobinPartitioner()})
	var got []int32
	for range 8 {
		got = append(got, must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: []byte("21")}))(t).Partition)
	}
	eq(t, "in turn", got, []int32{0, 1, 2, 3, 0, 1, 2, 3})
}
