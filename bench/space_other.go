//go:build !linux

package main

import "os"

// newSpace is plain memory here, and no file: a limit that no log on a disk can reach.
func newSpace(_ string, size int) (*space, error) {
	return &space{bytes: make([]byte, size), how: "plain memory, no file", unmap: func() error { return nil }}, nil
}

// reserve does nothing here: the file grows as it is written.
func reserve(*os.File, int) (bool, error) { return false, nil }

const syncName = "File.Sync"

func datasync(f *os.File) error { return f.Sync() }

func fileSystem(string) string { return "" }

// mapFile reads the file into memory, and maps nothing.
func mapFile(name string) ([]byte, func() error, error) {
	b, err := os.ReadFile(name)
	return b, func() error { return nil }, err
}
