package broker

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/kafka"
)

// Config is a topic's settings, parsed.
type Config struct {
	rlog.Settings       // segment.bytes, segment.ms, segment.index.bytes, index.interval.bytes
	MaxMessageBytes int // max.message.bytes
}

// DefaultMaxMessageBytes is Kafka's default for max.message.bytes: a batch of 1 MiB and its header.
const DefaultMaxMessageBytes = 1<<20 + 12

// MinSegmentBytes is the least segment.bytes.
const MinSegmentBytes = 1 << 10

// ParseConfig reads settings by Kafka's names. All faults are reported at once; they match kafka.ErrInvalidConfig, or
// kafka.ErrUnsupported for what this version does not do.
func ParseConfig(m map[string]string) (Config, error) {
	c := Config{
		Settings: rlog.Settings{
			SegmentBytes:  rlog.DefaultSegmentBytes,
			SegmentAge:    rlog.DefaultSegmentAge,
			IndexBytes:    rlog.DefaultIndexBytes,
			IndexInterval: index.Interval,
		},
		MaxMessageBytes: DefaultMaxMessageBytes,
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v := m[name]
		number := func(least, most int64) int64 {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < least || n > most {
				errs = append(errs, fmt.Errorf("%w: %s=%s is not a number from %d to %d", kafka.ErrInvalidConfig, name, v, least, most))
			}
			return n
		}
		only := func(allowed string) {
			if v != allowed {
				errs = append(errs, fmt.Errorf("%w: %s=%s, this version does %s only", kafka.ErrUnsupported, name, v, allowed))
			}
		}
		switch name {
		case "segment.bytes":
			c.SegmentBytes = number(MinSegmentBytes, rlog.MaxSegmentBytes)
		case "segment.ms":
			c.SegmentAge = time.Duration(number(1, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		case "segment.index.bytes":
			c.IndexBytes = int(number(1<<10, rlog.DefaultIndexBytes*10))
		case "index.interval.bytes":
			c.IndexInterval = number(0, math.MaxInt32)
		case "max.message.bytes":
			c.MaxMessageBytes = int(number(100, 1<<30))
		case "retention.ms", "retention.bytes":
			only("-1")
		case "cleanup.policy":
			only("delete")
		default:
			errs = append(errs, fmt.Errorf("%w: unknown name %s", kafka.ErrInvalidConfig, name))
		}
	}
	return c, errors.Join(errs...)
}
