package group_test

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

// javaCase is a topology, and what each of Kafka's assignors makes of it.
type javaCase struct {
	line int
	topology
	want map[string]map[string][]kafka.TopicPartition
}

// javaCases reads testdata/kafka/assignments.txt. testdata/java/README.md says what is in it.
func javaCases(t *testing.T) (cases []javaCase) {
	t.Helper()
	file, err := os.Open("testdata/kafka/assignments.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			continue
		}
		if f[0] == "topics" {
			cases = append(cases, javaCase{line: n, topology: topology{partitions: map[string]int32{}}, want: map[string]map[string][]kafka.TopicPartition{}})
		}
		c := &cases[len(cases)-1]
		switch f[0] {
		case "topics":
			for _, topic := range f[1:] {
				name, count, _ := strings.Cut(topic, "=")
				c.partitions[name] = int32(number(t, count))
			}
		case "member":
			m := group.Member{ID: f[1], InstanceID: dash(f[2]), Topics: list(f[3]), Owned: tps(f[4]), Generation: 7}
			c.members = append(c.members, m)
		default:
			if c.want[f[0]] == nil {
				c.want[f[0]] = map[string][]kafka.TopicPartition{}
			}
			c.want[f[0]][f[1]] = tps(f[2])
		}
	}
	if err := lines.Err(); err != nil || len(cases) < 200 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func list(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

// Range and round robin give everybody what Kafka's give, in groups of static and other members, with topics without partitions and topics that are not there.
func TestAssignAsJavaDoes(t *testing.T) {
	for _, c := range javaCases(t) {
		for _, a := range []group.Assignor{group.Range(), group.RoundRobin()} {
			if got := group.Assign(a, c.members, c.partitions); !same(got, c.want[a.Name()]) {
				t.Errorf("line %d, %s: %v, want %v", c.line, a.Name(), got, c.want[a.Name()])
			}
		}
	}
}

// Sticky is as even as Kafka's or more, and where they are as even it moves no more than Kafka's.
func TestStickyIsNoWorseThanJava(t *testing.T) {
	equal := 0
	for _, c := range javaCases(t) {
		items := c.items()
		got := c.reached(items, group.Assign(group.Sticky(), c.members, c.partitions))
		java := c.reached(items, c.want["sticky"])
		if got.squares > java.squares || got.squares == java.squares && got.moves > java.moves {
			t.Errorf("line %d: %+v, Java has %+v", c.line, got, java)
		}
		if got == java {
			equal++
		}
	}
	if equal < 100 {
		t.Errorf("equal to Java in %d cases only: they are not of the same things", equal)
	}
}

// What Kafka holds back in a cooperative group, since two say that they own it, is held back here too: both still have it, and whoever gets it would be the third.
func TestCooperativeHoldsBackWhatTwoOwn(t *testing.T) {
	checked := 0
	for _, c := range javaCases(t) {
		got := group.Assign(group.CooperativeSticky(), c.members, c.partitions)
		for _, it := range c.items() {
			claims := 0
			for _, m := range c.members {
				if slices.Contains(m.Owned, it.tp) {
					claims++
				}
			}
			if claims < 2 || given(c.want["cooperative-sticky"], it.tp) {
				continue
			}
			checked++
			if given(got, it.tp) {
				t.Errorf("line %d: %v is given out, %v", c.line, it.tp, got)
			}
		}
	}
	if checked == 0 {
		t.Error("nothing is held back")
	}
}

func given(out map[string][]kafka.TopicPartition, tp kafka.TopicPartition) bool {
	for _, list := range out {
		if slices.Contains(list, tp) {
			return true
		}
	}
	return false
}
