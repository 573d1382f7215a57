package group

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/internal/kafka"
)

// ConsumerProtocol is the protocol type of groups of consumers.
const ConsumerProtocol = "consumer"

// Subscription is what a consumer says of itself when it joins, in Kafka's form (ConsumerProtocolSubscription), so that consumers of other kinds understand it.
type Subscription struct {
	Topics     []string
	UserData   []byte
	Owned      []kafka.TopicPartition
	Generation int32 // in which Owned was got, -1 if it is not known
	Rack       string
}

// subscriptionVersion is what is written; all older ones are read, and of newer ones what this one has.
const subscriptionVersion = 3

// NewSubscription is what a member says that uses a.
func NewSubscription(a Assignor, topics []string, owned []kafka.TopicPartition, generation int32) Subscription {
	s := Subscription{Topics: topics, Owned: owned, Generation: generation}
	if u, ok := a.(userDater); ok {
		s.UserData = u.userData(owned, generation)
	}
	return s
}

// Append appends the subscription in its bytes.
func (s *Subscription) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, subscriptionVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s.Topics)))
	for _, t := range s.Topics {
		dst = appendString(dst, t)
	}
	dst = appendBytes(dst, s.UserData)
	dst = appendPartitions(dst, s.Owned)
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Generation))
	if s.Rack == "" {
		return binary.BigEndian.AppendUint16(dst, 0xffff)
	}
	return appendString(dst, s.Rack)
}

// ParseSubscription reads a subscription of any version. The error matches kafka.ErrInconsistentProtocol.
func ParseSubscription(b []byte) (s Subscription, err error) {
	r := reader{b: b}
	version := r.int16()
	for range r.count(2) {
		s.Topics = append(s.Topics, r.string())
	}
	s.UserData = r.bytes()
	s.Generation = -1
	if version >= 1 {
		s.Owned = r.partitions()
	}
	if version >= 2 {
		s.Generation = r.int32()
	}
	if version >= 3 {
		s.Rack = r.string()
	}
	if err := r.err("subscription"); err != nil {
		return Subscription{}, err
	}
	return s, nil
}

// AppendAssignment appends what a member is to own in Kafka's form (ConsumerProtocolAssignment).
func AppendAssignment(dst []byte, tps []kafka.TopicPartition) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = appendPartitions(dst, tps)
	return appendBytes(dst, nil)
}

// ParseAssignment reads an assignment of any version; no bytes are an empty one. The error matches kafka.ErrInconsistentProtocol.
func ParseAssignment(b []byte) ([]kafka.TopicPartition, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := reader{b: b}
	r.int16()
	tps := r.partitions()
	r.bytes()
	if err := r.err("assignment"); err != nil {
		return nil, err
	}
	return tps, nil
}

func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, 0xffffffff)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}

// appendPartitions appends partitions by topic, in order.
func appendPartitions(dst []byte, tps []kafka.TopicPartition) []byte {
	by := map[string][]int32{}
	for _, tp := range tps {
		by[tp.Topic] = append(by[tp.Topic], tp.Partition)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(by)))
	for _, topic := range sortedTopics(by) {
		dst = appendString(dst, topic)
		ps := by[topic]
		slices.Sort(ps)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(ps)))
		for _, p := range ps {
			dst = binary.BigEndian.AppendUint32(dst, uint32(p))
		}
	}
	return dst
}

// reader reads Kafka's plain types. After the first fault everything is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) err(what string) error {
	if r.bad {
		return fmt.Errorf("%w: a %s of a consumer that does not parse", kafka.ErrInconsistentProtocol, what)
	}
	return nil
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// count reads the number of elements of an array, each of which takes at least so many bytes. Null is none.
func (r *reader) count(least int) int {
	n := int(r.int32())
	if n < 0 {
		return 0
	}
	if n > len(r.b)/least {
		r.bad = true
		return 0
	}
	return n
}

// string reads a string; null is empty.
func (r *reader) string() string {
	n := r.int16()
	if n < 0 {
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) bytes() []byte {
	n := r.int32()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

func (r *reader) partitions() (tps []kafka.TopicPartition) {
	for range r.count(6) {
		topic := r.string()
		for range r.count(4) {
			tps = append(tps, kafka.TopicPartition{Topic: topic, Partition: r.int32()})
		}
	}
	return tps
}
