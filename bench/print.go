package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// printJSON writes a result as one line.
func printJSON(w io.Writer, r *result) error { return json.NewEncoder(w).Encode(r) }

// printTable writes a line for each result, and below what the limits are.
func printTable(w io.Writer, results []*result) error {
	if len(results) == 0 {
		return nil
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\twork\tacks\tRunnel\ta record\tp50\tp99\tallocs\tspread\tlimit\tratio\tverified")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%.2f\t%s\n", r.Name, r.Description, orDash(r.Acks), rate(r.Rate),
			duration(r.Each), duration(r.P50), duration(r.P99), r.Allocs, r.Spread, rate(r.Limits[0].Rate), r.Ratio, humanize.Comma(int64(r.ReadBack)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	width := 0
	for _, r := range results {
		width = max(width, len(r.Name))
	}
	for _, r := range results {
		printLimits(&b, r, width)
	}
	about, rounds := results[0].Environment, len(results[0].Seconds)
	fmt.Fprintf(&b, "\nRates are medians of %d rounds in which Runnel and the limits took turns; spread is the slowest round by the fastest; ratio is Runnel's rate by\n"+
		"the limit's, in P9 the limit's p50 by Runnel's. Verified is how many records were read back and compared, every byte, in order and number, in each round\n"+
		"and on each side. In REBALANCE and COMMIT a rebalance and a commit count as a record.\n"+
		"%s, %s/%s, %d CPUs, GOMAXPROCS %d, %s. The ratios are those of this machine in this run.\n",
		rounds, about.Go, about.OS, about.Arch, about.CPUs, about.GOMAXPROCS, strings.TrimSpace(about.Dir+" "+about.FileSystem))
	_, err := io.WriteString(w, b.String())
	return err
}

// printLimits says what the limits of a workload are and what they have done, behind its name in so many columns.
func printLimits(b *strings.Builder, r *result, width int) {
	if r.Label != runnelLabel {
		fmt.Fprintf(b, "%-*s  %s\n", width, r.Name, r.Label)
	}
	for i, l := range r.Limits {
		name := r.Name
		if i > 0 || r.Label != runnelLabel {
			name = ""
		}
		fmt.Fprintf(b, "%-*s  limit: %s (%s", width, name, l.Label, rate(l.Rate))
		if l.P50 > 0 {
			fmt.Fprintf(b, ", p50 %s, p99 %s", duration(l.P50), duration(l.P99))
		}
		fmt.Fprintf(b, ", spread %.2f", l.Spread)
		if i > 0 {
			fmt.Fprintf(b, "; ratio %.2f", r.ratio(l))
		}
		fmt.Fprintln(b, ")")
	}
	if r.RatioTo != "" {
		fmt.Fprintf(b, "%-*s  %s / %s: %.2f\n", width, "", r.Name, r.RatioTo, r.RateRatio)
	}
}

func rate(r float64) string { return humanize.SIWithDigits(r, 1, "/s") }

// duration shows nanoseconds to three digits; none: a dash.
func duration(ns float64) string {
	if ns == 0 {
		return "-"
	}
	d, unit := time.Duration(ns), time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
