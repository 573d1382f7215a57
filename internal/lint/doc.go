// Package lint is a test: it reads every Go file of the module, whatever its build tags, and fails where the house (the
// floors of the design) or one of its rules is broken. Nothing imports it.
//
// The floors. A package may import the module's packages on lower floors and the bedrock. Arrows on one floor, and the
// packages of each, are drawn in rules_test.go; a package that is not placed there is an error. Test files may import
// stream/streamtest and internal/crashtest from any floor.
//
//	5   cmd/…  bench/…  examples/…  internal/lint     programs; packages of one program may import each other
//	4   stream/wire  stream/cluster  stream/streamtest  internal/crashtest
//	3   stream ─> internal/broker
//	2   log  group  txn
//	1   index  internal/meta
//	0   internal/vfs  internal/batch  internal/wheel
//	    internal/kafka                                bedrock
//
// The rules, test files apart:
//
//	floors 0 to 3   pebble is imported by internal/meta and internal/vfs only
//	floors 0 to 3   mmap-go, x/sys, syscall, unsafe, io/ioutil and the functions of os and path/filepath that touch
//	                files are used by internal/vfs only
//	floors 0 to 4   the standard log is not imported, os.Exit is not called
//	everywhere      franz-go is imported by stream/wire and stream/cluster only
//
// The rules for all files:
//
//	the module's log is imported as rlog
//	no test sleeps, save in virtual time (files named …_synctest_test.go)
//	os, time and path/filepath are not imported by dot, since the rules above go by the name
//
// Directories with a go.mod of their own, testdata, and those whose name starts with a dot or an underscore are not read.
package lint
