package crashtest

import (
	"errors"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/stream"
)

// E2: a member of an old generation can neither commit nor send heartbeats, whatever it was told before.
func TestOldGenerationsAreRefused(t *testing.T) {
	eng, err := stream.OpenMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	ctx := t.Context()
	if err := eng.Admin().CreateTopic(ctx, "topic", stream.TopicConfig{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	join := func() stream.Consumer {
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "group", Topics: []string{"topic"}, MaxWait: -1})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	poll := func(cs ...stream.Consumer) {
		for range 4 { // each takes up what the others have brought about
			for _, c := range cs {
				if _, err := c.Poll(ctx, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	first := join()
	old := first.Group()
	second := join()
	poll(first, second)
	if now := first.Group(); now.Generation <= old.Generation || now.MemberID != old.MemberID {
		t.Fatalf("E2: %+v became %+v", old, now)
	}
	b := eng.Broker()
	p, err := b.Partition(stream.TopicPartition{Topic: "topic"})
	if err != nil {
		t.Fatal(err)
	}
	id := group.Identity{Group: "group", MemberID: old.MemberID, Generation: old.Generation}
	if err := b.CommitOffsets(ctx, id, []broker.Commit{{Partition: p}}); !errors.Is(err, stream.ErrIllegalGeneration) {
		t.Errorf("E2: a commit of generation %d: %v", old.Generation, err)
	}
	if err := b.Heartbeat(id); !errors.Is(err, stream.ErrIllegalGeneration) {
		t.Errorf("E2: a heartbeat of generation %d: %v", old.Generation, err)
	}
	id.Generation = first.Group().Generation
	if err := b.CommitOffsets(ctx, id, []broker.Commit{{Partition: p}}); err != nil {
		t.Errorf("E2: a commit of generation %d: %v", id.Generation, err)
	}
	if err := second.Close(ctx); err != nil {
		t.Error(err)
	}
	id.MemberID = second.Group().MemberID
	if err := b.Heartbeat(id); !errors.Is(err, stream.ErrUnknownMember) {
		t.Errorf("E2: a heartbeat of nobody: %v", err)
	}
}
