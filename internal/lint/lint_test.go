package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tree as it stands keeps to the floors and the rules.
func TestHouse(t *testing.T) {
	root := filepath.Join("..", "..")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("%s is not the root of %s (%v)", root, module, err)
	}
	seen := map[string]bool{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && !isRead(name, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		findings, err := check(rel, src)
		if err != nil {
			return err
		}
		for _, f := range findings {
			t.Error(f)
		}
		seen[rel] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/lint/doc.go", "internal/wheel/wheel.go"} {
		if !seen[name] {
			t.Errorf("%s was not read", name)
		}
	}
}

// isRead reports whether a directory holds packages of the module.
func isRead(dir, base string) bool {
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err != nil
}

// Each rule finds what it is for, and nothing beside it.
func TestRulesBite(t *testing.T) {
	const (
		up       = "upwards from"
		sideways = "stands on the same floor"
		unplaced = "stands on no floor"
		pebble   = "pebble is for"
		ground   = "is for internal/vfs"
		exit     = "os.Exit is for"
		stdlog   = "the standard log is for"
		franz    = "franz-go is for"
		asRlog   = "is imported as rlog"
		sleeps   = "a test sleeps"
		dot      = "is imported by dot"
	)
	imports := func(spec string) string { return "package p\nimport " + spec }
	own := func(pkg string) string { return imports(`"` + module + "/" + pkg + `"`) }
	uses := func(imp, expr string) string { return imports(`"`+imp+`"`) + "\nvar _ = " + expr }
	for _, tc := range []struct{ file, src, want string }{
		{"index/a.go", own("internal/vfs"), ""},
		{"internal/vfs/a.go", own("internal/kafka"), ""},
		{"internal/vfs/a.go", own("index"), up},
		{"internal/vfs/a.go", own("internal/batch"), sideways},
		{"internal/kafka/a.go", own("internal/vfs"), up},
		{"group/a.go", imports(`rlog "` + module + `/log"`), sideways},
		{"txn/a.go", own("group"), sideways},
		{"log/a.go", own("index"), ""},
		{"log/a.go", own("stream"), up},
		{"log/a_test.go", own("stream"), up},
		{"log/a_test.go", own("stream/streamtest"), ""},
		{"log/a_test.go", own("internal/crashtest"), ""},
		{"log/a.go", own("stream/streamtest"), up},
		{"log/a_linux_test.go", own("group"), sideways},
		{"log/a_test.go", imports(`rlog "` + module + `/log"`), ""},
		{"stream/a.go", own("internal/broker"), ""},
		{"internal/broker/a.go", own("stream"), sideways},
		{"stream/wire/a.go", own("stream"), ""},
		{"stream/wire/a.go", own("stream/cluster"), sideways},
		{"stream/streamtest/a_test.go", own("internal/crashtest"), ""},
		{"cmd/runnel/a.go", own("stream/wire"), ""},
		{"cmd/runnel/a.go", own("cmd/runnel/internal/top"), ""},
		{"cmd/runnel/a.go", own("cmd/other"), sideways},
		{"cmd/runnel/a.go", own("bench"), sideways},
		{"bench/suite/a.go", own("bench/peer"), ""},
		{"examples/queue/a.go", own("examples/outbox"), sideways},
		{"stream/a.go", own("bench"), up},
		{"log/a.go", "//go:build ignore && never\n\n" + own("stream"), up},
		{"internal/util/a.go", "package util", unplaced},
		{"internal/vfs/errorfs/a.go", "package errorfs", unplaced},
		{"a.go", "package runnel", unplaced},
		{"stream/a.go", own("internal/util"), unplaced},
		{"stream/a.go", imports(`"` + module + `"`), unplaced},
		{"stream/a.go", imports(`"` + module + `elsewhere/log"`), ""},

		{"log/a.go", imports(`"github.com/cockroachdb/pebble/v2"`), pebble},
		{"stream/a.go", imports(`_ "github.com/cockroachdb/pebble/v2/vfs"`), pebble},
		{"internal/meta/a.go", imports(`"github.com/cockroachdb/pebble/v2"`), ""},
		{"internal/vfs/a.go", imports(`"github.com/cockroachdb/pebble/v2/vfs"`), ""},
		{"log/a_test.go", imports(`"github.com/cockroachdb/pebble/v2"`), ""},
		{"bench/a.go", imports(`"github.com/cockroachdb/pebble/v2"`), ""},

		{"internal/batch/a.go", imports(`"unsafe"`), ground},
		{"log/a.go", imports(`"golang.org/x/sys/unix"`), ground},
		{"log/a.go", imports(`mm "github.com/edsrzf/mmap-go"`), ground},
		{"log/a.go", imports(`"syscall"`), ground},
		{"internal/vfs/a.go", imports(`("unsafe"; "golang.org/x/sys/unix"; "github.com/edsrzf/mmap-go")`), ""},
		{"log/a_test.go", imports(`"unsafe"`), ""},
		{"stream/streamtest/a.go", imports(`"unsafe"`), ""},
		{"log/a.go", uses("os", "os.Open"), ground},
		{"internal/meta/a.go", uses("os", "func() { os.MkdirAll(``, 0) }"), ground},
		{"stream/a.go", imports(`sys "os"`) + "\nvar _, _ = sys.ReadFile(``)", ground},
		{"index/a.go", uses("path/filepath", "filepath.Glob"), ground},
		{"log/a.go", uses("path/filepath", "filepath.Join(``)"), ""},
		{"log/a.go", uses("os", "os.Getpid()"), ""},
		{"log/a.go", "package p\nvar os struct{ Open int }\nvar _ = os.Open", ""},
		{"internal/vfs/a.go", uses("os", "os.OpenFile"), ""},
		{"log/a_test.go", uses("os", "os.ReadFile"), ""},
		{"cmd/runnel/a.go", uses("os", "os.ReadFile"), ""},
		{"log/a.go", imports(`. "os"`), dot},

		{"stream/wire/a.go", imports(`"log"`), stdlog},
		{"internal/kafka/a.go", imports(`l "log"`), stdlog},
		{"stream/a.go", imports(`"log/slog"`), ""},
		{"cmd/runnel/a.go", imports(`"log"`), ""},
		{"stream/cluster/a.go", uses("os", "os.Exit"), exit},
		{"internal/vfs/a.go", uses("os", "os.Exit"), exit},
		{"internal/crashtest/a_test.go", uses("os", "os.Exit"), ""},
		{"cmd/runnel/a.go", uses("os", "os.Exit"), ""},

		{"stream/a.go", imports(`"github.com/twmb/franz-go/pkg/kgo"`), franz},
		{"cmd/runnel/a.go", imports(`"github.com/twmb/franz-go/pkg/kadm"`), franz},
		{"stream/wire/a.go", imports(`"github.com/twmb/franz-go/pkg/kmsg"`), ""},
		{"stream/cluster/a.go", imports(`"github.com/twmb/franz-go/pkg/kgo"`), ""},
		{"stream/a_test.go", imports(`"github.com/twmb/franz-go/pkg/kgo"`), ""},

		{"internal/broker/a.go", own("log"), asRlog},
		{"internal/broker/a.go", imports(`tape "` + module + `/log"`), asRlog},
		{"internal/broker/a_test.go", own("log"), asRlog},
		{"internal/broker/a.go", imports(`rlog "` + module + `/log"`), ""},

		{"log/a_test.go", uses("time", "func() { time.Sleep(1) }"), sleeps},
		{"log/a_test.go", imports(`clock "time"`) + "\nvar _ = clock.Sleep", sleeps},
		{"examples/queue/a_test.go", uses("time", "func() { time.Sleep(1) }"), sleeps},
		{"log/a_synctest_test.go", uses("time", "func() { time.Sleep(1) }"), ""},
		{"log/a.go", uses("time", "func() { time.Sleep(1) }"), ""},
		{"log/a_test.go", uses("time", "time.Second"), ""},
		{"log/a_test.go", imports(`. "time"`), dot},
	} {
		findings, err := check(tc.file, tc.src)
		if err != nil {
			t.Fatalf("%s: %v\n%s", tc.file, err, tc.src)
		}
		switch got := strings.Join(findings, "\n"); {
		case tc.want == "" && got != "":
			t.Errorf("%s\n%s\nfound: %s", tc.file, tc.src, got)
		case tc.want != "" && (len(findings) != 1 || !strings.Contains(got, tc.want)):
			t.Errorf("%s\n%s\nfound: %q, want one: %q", tc.file, tc.src, got, tc.want)
		}
	}
}
