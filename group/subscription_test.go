package group_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

// javaBytes is a text of Kafka's client in its bytes, and what was put in.
type javaBytes struct {
	kind, name string
	version    int64
	bytes      []byte
	meaning    []string
}

func (j *javaBytes) String() string { return j.kind + " " + j.name }

// readJavaBytes reads testdata/kafka/bytes.txt. testdata/java/README.md says what is in it.
func readJavaBytes(t testing.TB, kind string) (all []javaBytes) {
	t.Helper()
	file, err := os.Open("testdata/kafka/bytes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Fields(lines.Text())
		b, err := hex.DecodeString(f[3])
		if err != nil {
			t.Fatal(err)
		}
		if f[0] == kind {
			all = append(all, javaBytes{f[0], f[1], int64(f[2][0] - '0'), b, f[4:]})
		}
	}
	if len(all) < 3 {
		t.Fatalf("%d of kind %s", len(all), kind)
	}
	return all
}

// data reads user data: "null", or x and the bytes.
func data(t *testing.T, s string) []byte {
	t.Helper()
	if s == "null" {
		return nil
	}
	b, err := hex.DecodeString(s[1:])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What Kafka's client says in any version is understood, and what is written is, to the byte, what the client writes in version 3. Kafka puts topics in order; here they are written as they are given.
func TestSubscriptionAsJava(t *testing.T) {
	for _, j := range readJavaBytes(t, "subscription") {
		want := group.Subscription{Topics: list(j.meaning[0]), UserData: data(t, j.meaning[1]), Generation: -1}
		slices.Sort(want.Topics)
		if j.version >= 1 {
			want.Owned = sorted(tps(j.meaning[2]))
		}
		if j.version >= 2 {
			want.Generation = int32(number(t, j.meaning[3]))
		}
		if j.version >= 3 {
			want.Rack = dash(j.meaning[4])
		}
		got, err := group.ParseSubscription(j.bytes)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v of version %d: %+v, %v, want %+v", &j, j.version, got, err, want)
		}
		if j.version == 3 {
			want.Owned = tps(j.meaning[2])
			if b := want.Append([]byte("before")); !bytes.Equal(b, append([]byte("before"), j.bytes...)) {
				t.Errorf("%v: written as %x, Java writes %x", &j, b[6:], j.bytes)
			}
		}
	}
}

// What Kafka's client is told in any version is understood. What is written is what the client writes in version 0, which has no other fields than the newest.
func TestAssignmentAsJava(t *testing.T) {
	for _, j := range readJavaBytes(t, "assignment") {
		want := tps(j.meaning[1])
		got, err := group.ParseAssignment(j.bytes)
		if err != nil || !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("%v of version %d: %v, %v, want %v", &j, j.version, got, err, want)
		}
		if j.version == 0 && j.meaning[0] == "null" && slices.IsSortedFunc(want, compareTPs) {
			if b := group.AppendAssignment([]byte("before"), want); !bytes.Equal(b, append([]byte("before"), j.bytes...)) {
				t.Errorf("%v: written as %x, Java writes %x", &j, b[6:], j.bytes)
			}
		}
	}
}

// The user data of the sticky assignor is, to the byte, what Kafka's client writes (which has topics in the order of their hashes: here that is the order of their names), and is read back as what
// the member owns: who has it alone keeps it.
func TestStickyUserDataAsJava(t *testing.T) {
	for _, j := range readJavaBytes(t, "sticky") {
		owned, generation := tps(j.meaning[0]), int32(number(t, j.meaning[1]))
		if s := group.NewSubscription(group.Sticky(), []string{"a"}, owned, generation); !bytes.Equal(s.UserData, j.bytes) {
			t.Errorf("%v: %x, Java writes %x", &j, s.UserData, j.bytes)
		}
		topics := []string{"a", "b", "c"}
		members := []group.Member{
			{ID: "0", Topics: topics},
			{ID: "1", Topics: topics, UserData: j.bytes},
			{ID: "2", Topics: topics, Owned: owned, Generation: generation - 1},
		}
		partitions := map[string]int32{"a": 5, "b": 5, "c": 6}
		if got := group.Assign(group.Sticky(), members, partitions)["1"]; !contains(got, owned) {
			t.Errorf("%v: %v does not keep %v", &j, got, owned)
		}
	}
}

func contains(all, some []kafka.TopicPartition) bool {
	return !slices.ContainsFunc(some, func(tp kafka.TopicPartition) bool { return !slices.Contains(all, tp) })
}

// User data without a generation is of a client before there were any: it counts less than all others. What does not parse is no claim.
func TestStickyUserDataOfOldAndBroken(t *testing.T) {
	full := group.NewSubscription(group.Sticky(), nil, tps("a-0"), 7).UserData
	more := group.NewSubscription(group.Sticky(), nil, tps("a-0 b-0"), 7).UserData
	for _, c := range []struct {
		name        string
		data        []byte
		keeps, wins bool // without anybody else, and against somebody of generation 0
	}{
		{"full", full, true, true},
		{"without generation", full[:len(full)-4], true, false},
		{"cut", full[:len(full)-6], false, false},
		{"cut behind a partition", more[:16], false, false},
		{"a count of 2^31-1", []byte{0x7f, 0xff, 0xff, 0xff}, false, false},
	} {
		old := group.Member{ID: "z", Topics: []string{"a"}, UserData: c.data}
		alone := group.Assign(group.Sticky(), []group.Member{old, {ID: "b", Topics: []string{"a"}}}, map[string]int32{"a": 1})
		if got := len(alone["z"]) == 1; got != c.keeps {
			t.Errorf("%s: keeps it: %v", c.name, got)
		}
		other := group.Member{ID: "b", Topics: []string{"a"}, Owned: tps("a-0"), Generation: 0}
		both := group.Assign(group.Sticky(), []group.Member{old, other}, map[string]int32{"a": 1})
		if got := len(both["z"]) == 1; got != c.wins {
			t.Errorf("%s: wins: %v", c.name, got)
		}
	}
}

// Of a version to come, what this one has is read. No bytes are an empty assignment, but no subscription.
func TestParseNewerAndNothing(t *testing.T) {
	want := group.Subscription{Topics: []string{"a"}, Owned: tps("a-1"), Generation: 4, Rack: "r"}
	b := want.Append(nil)
	b[1] = 9
	if got, err := group.ParseSubscription(append(b, "more"...)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	b = group.AppendAssignment(nil, tps("a-1"))
	b[1] = 9
	if got, err := group.ParseAssignment(append(b, "more"...)); err != nil || !slices.Equal(got, tps("a-1")) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := group.ParseAssignment(nil); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := group.ParseSubscription(nil); !errors.Is(err, kafka.ErrInconsistentProtocol) {
		t.Error(err)
	}
}

// Every cut of a text is an error, and none is a panic.
func TestParseCut(t *testing.T) {
	s := group.Subscription{Topics: []string{"a", "b"}, UserData: []byte("x"), Owned: tps("a-0 b-1"), Generation: 3, Rack: "r"}
	b := s.Append(nil)
	for n := range b {
		if _, err := group.ParseSubscription(b[:n]); !errors.Is(err, kafka.ErrInconsistentProtocol) {
			t.Errorf("%d bytes of a subscription: %v", n, err)
		}
	}
	b = group.AppendAssignment(nil, s.Owned)
	for n := 1; n < len(b); n++ {
		if _, err := group.ParseAssignment(b[:n]); !errors.Is(err, kafka.ErrInconsistentProtocol) {
			t.Errorf("%d bytes of an assignment: %v", n, err)
		}
	}
}

// Of what does not parse nothing is believed: a member whose subscription is cut gets nothing, since no topic of it is known.
func TestNothingOfWhatIsCut(t *testing.T) {
	s := group.Subscription{Topics: []string{"a", "b"}, Owned: tps("a-0 b-1"), Generation: 3}
	b := s.Append(nil)
	for n := range b {
		if got, err := group.ParseSubscription(b[:n]); err == nil || len(got.Topics) > 0 || len(got.Owned) > 0 {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(b), got, err)
		}
	}
	b = group.AppendAssignment(nil, s.Owned)
	for n := 1; n < len(b); n++ {
		if got, err := group.ParseAssignment(b[:n]); err == nil || len(got) > 0 {
			t.Fatalf("%d of %d bytes of an assignment: %v, %v", n, len(b), got, err)
		}
	}
}

// A great count in a few bytes costs nothing but the error.
func TestHugeCounts(t *testing.T) {
	for _, count := range []string{"\x7f\xff\xff\xff", "\x00\x0f\xff\xff"} {
		testHugeCount(t, count)
	}
}

func testHugeCount(t *testing.T, huge string) {
	const times = 20
	subscription := func(b []byte) error { _, err := group.ParseSubscription(b); return err }
	assignment := func(b []byte) error { _, err := group.ParseAssignment(b); return err }
	for _, c := range []struct {
		what  string
		parse func([]byte) error
		bytes string
	}{
		{"topics", subscription, "\x00\x03" + huge + "\x00\x01a"},
		{"user data", subscription, "\x00\x03\x00\x00\x00\x00" + huge + "xyz"},
		{"owned topics", subscription, "\x00\x03\x00\x00\x00\x00\xff\xff\xff\xff" + huge + "\x00\x01a\x00\x00"},
		{"owned partitions", subscription, "\x00\x03\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01\x00\x01a" + huge + "\x00"},
		{"assigned topics", assignment, "\x00\x00" + huge + "\x00\x01a\x00\x00"},
		{"assigned partitions", assignment, "\x00\x00\x00\x00\x00\x01\x00\x01a" + huge + "\x00"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if c.parse([]byte(c.bytes)) == nil {
				t.Fatalf("%s parse", c.what)
			}
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 1024 {
			t.Errorf("%s of %x cost %d bytes", c.what, huge, each)
		}
	}
}

// Whatever parses is no greater than its bytes, and is the same when it has been written and read again.
func FuzzSubscription(f *testing.F) {
	for _, j := range readJavaBytes(f, "subscription") {
		f.Add(j.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := group.ParseSubscription(b)
		if len(s.Topics) > len(b)/2 || len(s.Owned) > len(b)/4 {
			t.Fatalf("%d topics and %d partitions of %d bytes", len(s.Topics), len(s.Owned), len(b))
		}
		if err != nil {
			if !errors.Is(err, kafka.ErrInconsistentProtocol) {
				t.Fatal(err)
			}
			return
		}
		again, err := group.ParseSubscription(s.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		s.Owned, again.Owned = sorted(s.Owned), sorted(again.Owned)
		if !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v is read again as %+v", s, again)
		}
	})
}

// The same for assignments, and for what a sticky member says of what it owned: any bytes are a claim or none.
func FuzzAssignment(f *testing.F) {
	for _, kind := range []string{"assignment", "sticky"} {
		for _, j := range readJavaBytes(f, kind) {
			f.Add(j.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := group.Member{ID: "m", Topics: []string{"a"}, UserData: b}
		if out := group.Assign(group.Sticky(), []group.Member{m}, map[string]int32{"a": 3}); !slices.Equal(out["m"], tps("a-0 a-1 a-2")) {
			t.Fatal(out)
		}
		list, err := group.ParseAssignment(b)
		if len(list) > len(b)/4 {
			t.Fatalf("%d partitions of %d bytes", len(list), len(b))
		}
		if err != nil {
			if !errors.Is(err, kafka.ErrInconsistentProtocol) {
				t.Fatal(err)
			}
			return
		}
		again, err := group.ParseAssignment(group.AppendAssignment(nil, list))
		if err != nil || !slices.Equal(sorted(list), sorted(again)) {
			t.Fatalf("%v is read again as %v, %v", list, again, err)
		}
	})
}
