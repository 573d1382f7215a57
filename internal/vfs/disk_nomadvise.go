//go:build !linux

package vfs

import "os"

// Off Linux writers are never mapped, so there is nothing to populate.
const canPopulate = false

func populate([]byte) error     { return nil }
func isNoPopulate(error) bool   { return true }
func mapBudget() int64          { return mapsPerProcess }
func datasync(f *os.File) error { return f.Sync() } // F_FULLFSYNC on darwin

func dropCache(*os.File, int64, ...*mapping) error { return nil }

func unpopulate([]byte) {}
