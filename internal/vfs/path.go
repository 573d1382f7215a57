package vfs

import (
	"path"
	"path/filepath"
	"strings"
)

// split gives the elements of a name for the grounds that keep their own tree. There is one root, and every name,
// with a leading slash or without, is looked up from it.
func split(name string) []string {
	name = path.Clean("/" + filepath.ToSlash(name))
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

func cleanName(name string) string { return strings.Join(split(name), "/") }
