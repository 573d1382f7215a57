package broker

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/kafka"
)

// Config is a topic's settings, parsed.
type Config struct {
	rlog.Settings       // segment.bytes, segment.ms, segment.index.bytes, index.interval.bytes, message.timestamp.type
	MaxMessageBytes int // max.message.bytes

	Delete          bool          // cleanup.policy has delete
	Compact         bool          // cleanup.policy has compact
	Retention       time.Duration // retention.ms; negative: none
	RetentionBytes  int64         // retention.bytes; negative: none
	DeleteRetention time.Duration // delete.retention.ms
	MinLag          time.Duration // min.compaction.lag.ms
	MaxLag          time.Duration // max.compaction.lag.ms
	DirtyRatio      float64       // min.cleanable.dirty.ratio
}

// Expires reports whether records go by age or size.
func (c *Config) Expires() bool { return c.Delete && (c.Retention >= 0 || c.RetentionBytes >= 0) }

// forever is the longest time in milliseconds that a time.Duration holds.
const forever = time.Duration(math.MaxInt64 / int64(time.Millisecond) * int64(time.Millisecond))

// DefaultMaxMessageBytes is Kafka's default for max.message.bytes: a batch of 1 MiB and its header.
const DefaultMaxMessageBytes = 1<<20 + 12

// MinSegmentBytes is the least segment.bytes.
const MinSegmentBytes = 1 << 10

// ParseConfig reads settings by Kafka's names. All faults are reported at once; they match kafka.ErrInvalidConfig.
func ParseConfig(m map[string]string) (Config, error) {
	c := Config{
		Settings: rlog.Settings{
			SegmentBytes:  rlog.DefaultSegmentBytes,
			SegmentAge:    rlog.DefaultSegmentAge,
			IndexBytes:    rlog.DefaultIndexBytes,
			IndexInterval: index.Interval,
		},
		MaxMessageBytes: DefaultMaxMessageBytes,
		Delete:          true,
		Retention:       -1,
		RetentionBytes:  -1,
		DeleteRetention: 24 * time.Hour,
		MaxLag:          forever,
		DirtyRatio:      0.5,
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
		duration := func(least int64) time.Duration {
			n := number(least, math.MaxInt64)
			if n < 0 {
				return -1
			}
			return time.Duration(min(n, forever.Milliseconds())) * time.Millisecond
		}
		switch name {
		case "segment.bytes":
			c.SegmentBytes = number(MinSegmentBytes, rlog.MaxSegmentBytes)
		case "segment.ms":
			c.SegmentAge = duration(1)
		case "segment.index.bytes":
			c.IndexBytes = int(number(1<<10, rlog.DefaultIndexBytes*10))
		case "index.interval.bytes":
			if c.IndexInterval = number(0, math.MaxInt32); c.IndexInterval == 0 {
				c.IndexInterval = -1 // to the log, 0 is the default
			}
		case "max.message.bytes":
			c.MaxMessageBytes = int(number(100, 1<<30))
		case "retention.ms":
			c.Retention = duration(-1)
		case "retention.bytes":
			c.RetentionBytes = number(-1, math.MaxInt64)
		case "delete.retention.ms":
			c.DeleteRetention = duration(0)
		case "min.compaction.lag.ms":
			c.MinLag = duration(0)
		case "max.compaction.lag.ms":
			c.MaxLag = duration(1)
		case "min.cleanable.dirty.ratio":
			r, err := strconv.ParseFloat(v, 64)
			if err != nil || !(r >= 0 && r <= 1) {
				errs = append(errs, fmt.Errorf("%w: %s=%s is not a number from 0 to 1", kafka.ErrInvalidConfig, name, v))
			}
			c.DirtyRatio = r
		case "message.timestamp.type":
			c.AppendTime = v == "LogAppendTime"
			if !c.AppendTime && v != "CreateTime" {
				errs = append(errs, fmt.Errorf("%w: %s=%s is neither CreateTime nor LogAppendTime", kafka.ErrInvalidConfig, name, v))
			}
		case "cleanup.policy":
			c.Delete, c.Compact = false, false
			for policy := range strings.SplitSeq(v, ",") {
				switch strings.TrimSpace(policy) {
				case "delete":
					c.Delete = true
				case "compact":
					c.Compact = true
				default:
					errs = append(errs, fmt.Errorf("%w: %s=%s is not compact, delete, or both", kafka.ErrInvalidConfig, name, v))
				}
			}
		default:
			errs = append(errs, fmt.Errorf("%w: unknown name %s", kafka.ErrInvalidConfig, name))
		}
	}
	if c.MinLag > c.MaxLag {
		errs = append(errs, fmt.Errorf("%w: min.compaction.lag.ms is greater than max.compaction.lag.ms", kafka.ErrInvalidConfig))
	}
	if c.Compact {
		// What is older than that has to be in a segment that can be compacted.
		c.SegmentAge = min(c.SegmentAge, c.MaxLag)
	}
	return c, errors.Join(errs...)
}
