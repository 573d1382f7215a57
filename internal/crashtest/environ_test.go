package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

var environ = flag.Int("environ", 1, "rounds of full and failing disks; NIGHT: 50")

// environEnv makes this binary the child of a test of the environment: it holds the arguments, one a line.
const environEnv = "RUNNEL_CRASHTEST_ENVIRON"

// hang is how long something may take that has no reason to take long: what takes longer is reported as hanging.
const hang = 60 * time.Second

// childArgs returns the arguments of a child; nil in the process that the tests run in.
func childArgs() []string {
	if env := os.Getenv(environEnv); env != "" {
		return strings.Split(env, "\n")
	}
	return nil
}

// childCommand is the command of a child that runs the calling test again with arguments. wrap is what stands in front of it.
func childCommand(t *testing.T, wrap []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(t.Name(), "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	line := append(append([]string{}, wrap...), self, "-test.v", "-test.run="+strings.Join(names, "/"),
		fmt.Sprintf("-test.timeout=%v", 3*hang), fmt.Sprintf("-environ=%d", *environ))
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), environEnv+"="+strings.Join(args, "\n"))
	return cmd
}

// alive runs the calling test again in a process of its own, where childArgs returns args, and fails unless that process
// lives to its end and the test succeeds there: no environment may end the host of an engine.
func alive(t *testing.T, args ...string) { aliveUnder(t, nil, args...) }

// aliveUnder is alive with something in front of the child's command.
func aliveUnder(t *testing.T, wrap []string, args ...string) {
	t.Helper()
	out, err := childCommand(t, wrap, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("the process of the engine: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// atOnce is a context for what must not hang.
func atOnce(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// eventually calls try until it succeeds: for what comes back by itself, after a time that nobody promises.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, begin := atOnce(t), time.Now()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for tries := 0; ; tries++ {
		err := try()
		if err == nil {
			if tries > 0 {
				t.Logf("%s: after %v", what, time.Since(begin).Round(time.Millisecond))
			}
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, hang, err)
		}
	}
}

// oneOf reports whether err matches one of kinds.
func oneOf(err error, kinds ...error) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// isTyped reports whether a program can decide on err: nil, or something that matches a kind of package stream.
func isTyped(err error) bool {
	var kind *kafka.Error
	return err == nil || errors.As(err, &kind)
}

// openAt opens an engine that syncs in the background as fast as it can.
func openAt(t *testing.T, dir string, o stream.Options) *stream.Engine {
	t.Helper()
	if o.SyncInterval == 0 {
		o.SyncInterval = time.Millisecond
	}
	eng, err := stream.Open(dir, &o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return eng
}

// createTopic makes a topic.
func createTopic(t *testing.T, eng *stream.Engine, name string, c stream.TopicConfig) {
	t.Helper()
	if err := eng.Admin().CreateTopic(atOnce(t), name, c); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// wantState checks what the engine says of partitions.
func wantState(t *testing.T, eng *stream.Engine, want stream.PartitionState, tps ...stream.TopicPartition) {
	t.Helper()
	hs, err := eng.Admin().Health(atOnce(t), tps...)
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	for _, h := range hs {
		if h.State != want {
			t.Errorf("%v is %v, want %v: %v", h.TopicPartition, h.State, want, h.Err)
		}
	}
}

func part(topic string, n int32) stream.TopicPartition {
	return stream.TopicPartition{Topic: topic, Partition: n}
}
