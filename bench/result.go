package main

import (
	"runtime"

	"github.com/runnelmq/runnel/stream"
)

// figures are what was measured of one side of a workload. Times of single calls are medians of the rounds' percentiles.
type figures struct {
	Label   string    `json:"label"`
	Seconds []float64 `json:"seconds"` // of each round
	Median  float64   `json:"median"`  // of them
	Spread  float64   `json:"spread"`  // the greatest divided by the least
	Rate    float64   `json:"records_per_second"`
	Each    float64   `json:"ns_per_record"`
	Allocs  float64   `json:"allocs_per_record"`
	P50     float64   `json:"p50_ns,omitempty"`
	P99     float64   `json:"p99_ns,omitempty"`
}

// A result is one line of output. The figures at its top are Runnel's.
type result struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Acks        string `json:"acks,omitempty"`
	Records     int    `json:"records"` // that the clock ran for; rebalances of REBALANCE, commits of COMMIT
	Bytes       int    `json:"bytes"`   // of their keys and values
	figures
	Limits      []figures   `json:"limits"` // the first is the one that counts
	LimitMedian float64     `json:"limit_median"`
	RatioOf     string      `json:"ratio_of"`             // rate or p50
	Ratio       float64     `json:"ratio"`                // Runnel's rate divided by the limit's, or the limit's p50 by Runnel's
	RatioTo     string      `json:"ratio_to,omitempty"`   // another workload of this run
	RateRatio   float64     `json:"rate_ratio,omitempty"` // Runnel's rate divided by its rate there
	Verified    bool        `json:"verified"`
	ReadBack    int         `json:"records_read_back"` // and compared, in each round and on each side
	Environment environment `json:"environment"`
}

// newResult puts the figures of a workload's sides together; only those that were verified come here.
func newResult(e *env, w *workload, sides []figures) *result {
	r := &result{
		Name: w.name, Description: w.description,
		Records: w.records(e), Bytes: w.bytes(e),
		figures: sides[0], Limits: sides[1:],
		LimitMedian: sides[1].Median, RatioOf: "rate",
		Verified: true, ReadBack: w.written(e), Environment: e.about,
	}
	if w.ratioOfP50 {
		r.RatioOf = "p50"
	}
	r.Ratio = r.ratio(r.Limits[0])
	if w.acks != stream.AcksDefault {
		r.Acks = w.acks.String()
	}
	return r
}

// ratio is how near Runnel comes to a limit.
func (r *result) ratio(limit figures) float64 {
	if r.RatioOf == "p50" {
		return limit.P50 / r.P50
	}
	return r.Rate / limit.Rate
}

// compare sets the ratio to the workload that w names, if it has run.
func (r *result) compare(w *workload, earlier []*result) {
	for _, other := range earlier {
		if other.Name == w.ratioTo {
			r.RatioTo, r.RateRatio = other.Name, r.Rate/other.Rate
		}
	}
}

// An environment is what figures of different runs cannot be compared without.
type environment struct {
	Go         string `json:"go"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Dir        string `json:"dir"`
	FileSystem string `json:"file_system,omitempty"` // of dir
}

func describe(dir string) environment {
	return environment{
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Dir: dir, FileSystem: fileSystem(dir),
	}
}
