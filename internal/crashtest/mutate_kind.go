package crashtest

import (
	"path"
	"strings"

	"github.com/runnelmq/runnel/stream"
)

// Kinds of files and directories of an engine. In a partition's directory they are the suffixes.
const (
	kindLog       = ".log"
	kindIndex     = ".index"
	kindTimeIndex = ".timeindex"
	kindSnapshot  = ".snapshot"
	kindCleaned   = ".cleaned" // of a compaction that has not come to its end
	kindSwap      = ".swap"    // of one that has
	kindMetadata  = "partition.metadata"

	kindWAL      = "meta: log"
	kindTable    = "meta: table"
	kindManifest = "meta: MANIFEST"
	kindOptions  = "meta: OPTIONS"
	kindMarker   = "meta: marker"
	kindLockFile = "meta: LOCK"
	kindMetaFile = "meta: other"

	kindRunnel    = "RUNNEL"
	kindLock      = "LOCK"
	kindBallast   = "BALLAST"
	kindRoot      = "the directory"
	kindMeta      = "meta/"
	kindTopics    = "topics/"
	kindPartition = "partition/"
	kindOther     = "other"
)

// kindOf tells what a path is by its name.
func kindOf(name string, dir bool) string {
	base, parent := path.Base(name), path.Base(path.Dir(name))
	ext := path.Ext(base)
	switch {
	case name == engineDir:
		return kindRoot
	case dir && parent == engineDir:
		return base + "/"
	case dir:
		return kindPartition
	case parent == "meta":
		return kindOfMeta(base)
	case parent == engineDir:
		return base
	case base == kindMetadata:
		return kindMetadata
	case ext == kindLog || ext == kindIndex || ext == kindTimeIndex || ext == kindSnapshot || ext == kindCleaned || ext == kindSwap:
		return ext
	}
	return kindOther
}

func kindOfMeta(base string) string {
	switch {
	case path.Ext(base) == ".log":
		return kindWAL
	case path.Ext(base) == ".sst":
		return kindTable
	case strings.HasPrefix(base, "MANIFEST"):
		return kindManifest
	case strings.HasPrefix(base, "OPTIONS"):
		return kindOptions
	case strings.HasPrefix(base, "marker"):
		return kindMarker
	case base == "LOCK":
		return kindLockFile
	}
	return kindMetaFile
}

// harmless are the kinds of files that decide nothing: whatever they hold, everything is as it was. (A14, C3)
var harmless = map[string]bool{kindIndex: true, kindTimeIndex: true, kindSnapshot: true, kindCleaned: true, kindLock: true, kindBallast: true, kindLockFile: true}

// ofMeta tells the kinds that belong to the metadata store.
func ofMeta(kind string) bool { return strings.HasPrefix(kind, "meta") }

// dirOf is the directory of a partition.
func dirOf(tp stream.TopicPartition) string { return path.Join(engineDir, "topics", tp.String()) }

// touches says whether damage to a path is damage to a partition.
func touches(name string, tp stream.TopicPartition) bool {
	dir := dirOf(tp)
	return name == dir || strings.HasPrefix(name, dir+"/") || strings.HasPrefix(dir, name+"/")
}
