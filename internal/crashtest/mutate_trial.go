package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// An outcome is what became of a damaged directory.
type outcome string

const (
	outSame    outcome = "same"    // everything is as it was
	outError   outcome = "error"   // an explicit error says what cannot be read
	outPrefix  outcome = "prefix"  // a log above its recovery point was cut, as after a loss of power
	outForeign outcome = "foreign" // files of two partitions changed places, and what one holds now was sent to the other
	outMeta    outcome = "meta"    // the metadata store has lost its end without a word
)

// A mutationImage is a golden directory and damage that is done to it.
type mutationImage struct {
	Golden   *golden
	Mutation mutation
	Seed     uint64 // decides what is asked

	disk *vfs.Sim // without the damage
}

// A mutationTrial is one damaged directory being looked at.
type mutationTrial struct {
	*mutationImage
	kind    string // of the damaged file
	disk    *vfs.Sim
	content map[string][]byte // of all files, after the damage
	ev      trialEvents

	out   outcome
	notes []string // what was seen of it
}

// trialEvents are what the engine has said of itself.
type trialEvents struct {
	sync.Mutex
	cuts    []tailCut
	strays  map[string]string // from where to where
	clamped map[stream.TopicPartition]int64
}

type tailCut struct {
	tp     stream.TopicPartition
	end, n int64
	file   string
}

// check damages the directory and holds what the engine makes of it against what it held before.
func (im *mutationImage) check(ctx context.Context) (t *mutationTrial, err error) {
	err = contain(func() error {
		t, err = im.try(ctx, (*mutationTrial).look)
		return err
	})
	if err != nil && t != nil && t.mayForget() {
		lost := err
		err = contain(func() error {
			t, err = im.try(ctx, (*mutationTrial).lookAtPrefix)
			return err
		})
		if err == nil {
			t.out = outMeta
			t.note(strings.SplitN(lost.Error(), ":", 2)[0] + " not kept")
		}
	}
	return t, err
}

func (im *mutationImage) try(ctx context.Context, look func(*mutationTrial, context.Context) error) (*mutationTrial, error) {
	t := &mutationTrial{mutationImage: im, disk: im.disk.Crash(), out: outSame, kind: im.Golden.kind(im.Mutation.Name)}
	t.ev.strays, t.ev.clamped = map[string]string{}, map[stream.TopicPartition]int64{}
	if err := im.Mutation.apply(t.disk); err != nil {
		return t, fmt.Errorf("the damage cannot be done: %w", err)
	}
	var err error
	if _, t.content, err = readTree(t.disk, engineDir); err != nil {
		return t, err
	}
	return t, look(t, ctx)
}

// kind is kindOf for something in the directory.
func (g *golden) kind(name string) string {
	return kindOf(name, slices.ContainsFunc(g.tree, func(f treeFile) bool { return f.Name == name && f.Dir }))
}

func (t *mutationTrial) note(s string) {
	if !slices.Contains(t.notes, s) {
		t.notes = append(t.notes, s)
	}
}

// worse raises the outcome; an error outranks what is the same.
func (t *mutationTrial) worse(o outcome) {
	if t.out == outSame || o == outForeign || t.out == outError && o == outPrefix {
		t.out = o
	}
}

func (t *mutationTrial) open() (*stream.Engine, error) {
	return openQuiet(t.disk, stream.Events{
		TailCut: func(tp stream.TopicPartition, end, n int64, file string) {
			t.ev.Lock()
			defer t.ev.Unlock()
			t.ev.cuts = append(t.ev.cuts, tailCut{tp, end, n, file})
		},
		StrayDirectory: func(from, to string) {
			t.ev.Lock()
			defer t.ev.Unlock()
			t.ev.strays[from] = to
		},
		OffsetClamped: func(_ string, tp stream.TopicPartition, _, to int64) {
			t.ev.Lock()
			defer t.ev.Unlock()
			t.ev.clamped[tp] = to
		},
	})
}

// look opens the engine twice. The first time it only reads, and no byte of a log may change; the second time has to give the
// same answers, and then takes records. (F7)
func (t *mutationTrial) look(ctx context.Context) error {
	first, err := t.visit(ctx, nil)
	if err != nil {
		return fmt.Errorf("%w (first open)", err)
	}
	if err := t.checkBytes(); err != nil {
		return err
	}
	if _, err = t.visit(ctx, first); err != nil {
		return fmt.Errorf("%w (second open)", err)
	}
	return nil
}

// answers are what one opening of the engine has said.
type answers struct {
	refused string
	parts   map[stream.TopicPartition]partAnswer
}

// visit opens the engine, asks it everything and closes it. With the answers of an earlier one it compares, and appends.
func (t *mutationTrial) visit(ctx context.Context, before *answers) (_ *answers, err error) {
	eng, err := t.open()
	if err != nil {
		a := &answers{refused: errorKind(err)}
		if !t.mayRefuse() || a.refused == "" || before != nil && before.refused == "" {
			return nil, fmt.Errorf("F7: open: %w", err)
		}
		t.worse(outError)
		t.note("open: " + a.refused)
		return a, nil
	}
	defer func() {
		if cerr := eng.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("F7: close: %w", cerr)
		}
	}()
	if before != nil && before.refused != "" {
		return nil, fmt.Errorf("F7: the second open succeeds, the first was %s", before.refused)
	}
	a := &answers{parts: map[stream.TopicPartition]partAnswer{}}
	infos, err := eng.Admin().Topics(ctx)
	if err != nil || len(infos) != len(t.Golden.Want.Topics) {
		return nil, fmt.Errorf("A10: %d topics of %d are there, error %v", len(infos), len(t.Golden.Want.Topics), err)
	}
	for _, info := range infos {
		if w := t.Golden.Want.Topics[info.Name]; info.Partitions != w.Partitions || w.Partitions == 0 {
			return nil, fmt.Errorf("A10: topic %s has %d partitions, not %d", info.Name, info.Partitions, w.Partitions)
		}
	}
	for _, tp := range t.Golden.Want.partitions() {
		v := t.view(tp)
		if a.parts[tp], err = v.ask(ctx, eng); err != nil {
			return nil, fmt.Errorf("%w, in %v", err, tp)
		}
	}
	if err := t.askNames(ctx, eng, a); err != nil {
		return nil, err
	}
	if before == nil {
		return a, nil
	}
	for tp, is := range a.parts {
		if was := before.parts[tp]; is.String() != was.String() {
			return nil, fmt.Errorf("F7: %v gave %v, and now %v", tp, was, is)
		}
		if err := t.view(tp).append(ctx, eng, is); err != nil {
			return nil, fmt.Errorf("%w, in %v", err, tp)
		}
	}
	return a, nil
}

// mayForget says whether the metadata store may have lost its end without a word. Damage to the end of its log is to the store what a torn
// tail is; and an older list of its tables under the name of the newest is a list of its tables.
func (t *mutationTrial) mayForget() bool {
	return t.kind == kindWAL || t.kind == kindManifest && (t.Mutation.Op == opSwap || t.Mutation.Op == opCopy)
}

// mayRefuse says whether Open may fail: the damage is not in one partition.
func (t *mutationTrial) mayRefuse() bool {
	return ofMeta(t.kind) && t.kind != kindLockFile || t.kind == kindRunnel
}

// errorKind names the explicit error that err is, "" if it is none.
func errorKind(err error) string {
	switch {
	case errors.Is(err, stream.ErrCorrupt):
		return "ErrCorrupt"
	case errors.Is(err, stream.ErrUnsupported):
		return "ErrUnsupported"
	case errors.Is(err, stream.ErrMetaFailed):
		return "ErrMetaFailed"
	}
	return ""
}

// checkBytes compares the logs with what they were before the engine came: they are as they were, but for what was cut off
// behind the end, which was zero or lies in the quarantine, and for what moved there, or aside, as a whole. (A8)
func (t *mutationTrial) checkBytes() error {
	_, now, err := readTree(t.disk, engineDir)
	if err != nil {
		return err
	}
	for name, was := range t.content {
		if path.Ext(name) != kindLog && path.Ext(name) != kindSwap || strings.HasPrefix(name, engineDir+"/meta/") || t.Golden.replaced(name) {
			continue
		}
		dir := path.Dir(name)
		if strings.HasSuffix(dir, "-delete") {
			continue
		}
		if to, ok := t.ev.strays[dir]; ok {
			name = path.Join(to, path.Base(name))
		}
		is, there := now[name]
		if !there {
			is, there = now[strings.TrimSuffix(name, kindSwap)]
		}
		cut := was[min(len(is), len(was)):]
		switch {
		case path.Ext(name) == kindSwap && quarantined(now, was): // the segments that it was made of are there
		case !bytes.HasPrefix(was, is):
			return fmt.Errorf("A8: %s was changed", name)
		case len(bytes.Trim(cut, "\x00")) > 0 && !quarantined(now, cut):
			return fmt.Errorf("A8: %d bytes of %s are gone (there is a file: %t), and not in the quarantine", len(cut), name, there)
		}
	}
	return nil
}

// replaced says whether a segment is one that may go: a complete .swap file takes its place, or its name lies before the log start.
func (g *golden) replaced(name string) bool {
	for tp, p := range g.Parts {
		if base, err := strconv.ParseInt(strings.TrimSuffix(path.Base(name), kindLog), 10, 64); err == nil && dirOf(tp) == path.Dir(name) && base < p.Start {
			return true
		}
	}
	swaps := slices.ContainsFunc(g.tree, func(f treeFile) bool { return path.Dir(f.Name) == path.Dir(name) && path.Ext(f.Name) == kindSwap })
	if !swaps || path.Ext(name) != kindLog {
		return false
	}
	for tp, p := range g.Parts {
		if dirOf(tp) == path.Dir(name) {
			return !slices.ContainsFunc(p.Batches, func(b goldenBatch) bool { return b.File == name })
		}
	}
	return false
}

// quarantined says whether bytes lie in the quarantine; zeros at the end do not count.
func quarantined(now map[string][]byte, b []byte) bool {
	b = bytes.TrimRight(b, "\x00")
	for name, q := range now {
		if path.Base(path.Dir(name)) == "quarantine" && bytes.Equal(bytes.TrimRight(q, "\x00"), b) {
			return true
		}
	}
	return false
}
