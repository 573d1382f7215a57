package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/runnelmq/runnel"

const (
	bedrock = -1
	library = 3 // the topmost floor of what every user links
	faces   = 4 // the topmost floor of what a user can link
	program = 5
)

// places says on which floor a package stands. A directory of the form "x/…" places all packages at and below x.
var places = map[string]int{
	"internal/kafka":    bedrock,
	"internal/sabotage": bedrock,

	"internal/vfs":   0,
	"internal/batch": 0,
	"internal/wheel": 0,

	"index":         1,
	"internal/meta": 1,

	"log":   2,
	"group": 2,
	"txn":   2,

	"internal/broker": 3,
	"stream":          3,

	"stream/wire":        4,
	"stream/cluster":     4,
	"stream/streamtest":  4,
	"internal/crashtest": 4,

	"cmd/…":         program,
	"bench/…":       program,
	"examples/…":    program,
	"internal/lint": program,
}

// arrows are the imports between packages on one floor.
var arrows = map[string][]string{
	"stream": {"internal/broker"},
}

// helpers are packages that test files import from any floor.
var helpers = []string{"stream/streamtest", "internal/crashtest"}

// fileFuncs are the functions that touch files.
var fileFuncs = map[string][]string{
	"os": {"Chdir", "Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "DirFS", "Lchown", "Link", "Lstat",
		"Mkdir", "MkdirAll", "MkdirTemp", "NewFile", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile",
		"Readlink", "Remove", "RemoveAll", "Rename", "Stat", "Symlink", "Truncate", "WriteFile"},
	"path/filepath": {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
}

// floor returns the floor of a package; pkg is its directory below the module's root.
func floor(pkg string) (int, bool) {
	if n, ok := places[pkg]; ok {
		return n, true
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if n, ok := places[dir+"/…"]; ok {
			return n, true
		}
	}
	return 0, false
}

// programOf names the program that a package of floor 5 is part of: bench, or a directory of cmd or examples.
func programOf(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	if len(parts) == 1 || parts[0] == "bench" {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}

// within reports whether an import path is that of a package, or of one below it.
func within(imp, pkg string) bool { return imp == pkg || strings.HasPrefix(imp, pkg+"/") }

// A file is one source file under inspection.
type file struct {
	pkg      string
	test     bool
	virtual  bool // runs in virtual time
	floor    int
	fset     *token.FileSet
	ast      *ast.File
	findings []string
}

// check inspects one file; name is its path below the module's root, src as for parser.ParseFile.
func check(name string, src any) ([]string, error) {
	f := &file{
		pkg:     path.Dir(name),
		test:    strings.HasSuffix(name, "_test.go"),
		virtual: strings.HasSuffix(name, "_synctest_test.go"),
		fset:    token.NewFileSet(),
	}
	parsed, err := parser.ParseFile(f.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.ast = parsed
	n, ok := floor(f.pkg)
	if !ok {
		f.report(parsed.Package, "package %s stands on no floor: place it in internal/lint/rules_test.go", f.pkg)
		return f.findings, nil
	}
	f.floor = n
	for _, spec := range parsed.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		name := path.Base(imp)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		f.checkImport(spec, imp, name)
		f.checkUses(imp, name)
	}
	return f.findings, nil
}

func (f *file) report(pos token.Pos, format string, args ...any) {
	f.findings = append(f.findings, fmt.Sprintf("%v: ", f.fset.Position(pos))+fmt.Sprintf(format, args...))
}

func (f *file) checkImport(spec *ast.ImportSpec, imp, name string) {
	if imp == module || strings.HasPrefix(imp, module+"/") {
		f.checkArrow(spec, strings.TrimPrefix(strings.TrimPrefix(imp, module), "/"))
	}
	if imp == module+"/log" && name != "rlog" {
		f.report(spec.Pos(), "the module's log is imported as rlog, not %s", name)
	}
	if name == "." && (imp == "time" || fileFuncs[imp] != nil) {
		f.report(spec.Pos(), "%s is imported by dot", imp)
	}
	if f.test {
		return
	}
	if f.floor <= library {
		if within(imp, "github.com/cockroachdb/pebble") && f.pkg != "internal/meta" && f.pkg != "internal/vfs" {
			f.report(spec.Pos(), "pebble is for internal/meta and internal/vfs")
		}
		for _, ground := range []string{"github.com/edsrzf/mmap-go", "golang.org/x/sys", "syscall", "unsafe", "io/ioutil"} {
			if within(imp, ground) && f.pkg != "internal/vfs" {
				f.report(spec.Pos(), "%s is for internal/vfs", imp)
			}
		}
	}
	if f.floor <= faces && imp == "log" {
		f.report(spec.Pos(), "the standard log is for programs: a library takes a *slog.Logger")
	}
	if within(imp, "github.com/twmb/franz-go") && f.pkg != "stream/wire" && f.pkg != "stream/cluster" {
		f.report(spec.Pos(), "franz-go is for stream/wire and stream/cluster")
	}
}

// checkArrow checks an import of one package of the module by another.
func (f *file) checkArrow(spec *ast.ImportSpec, to string) {
	n, ok := floor(to)
	switch {
	case !ok:
		f.report(spec.Pos(), "imports %s, which stands on no floor", to)
	case n < f.floor, to == f.pkg: // downwards; a test of the package's own surface
	case slices.Contains(arrows[f.pkg], to):
	case f.test && slices.Contains(helpers, to):
	case n == program && f.floor == program && programOf(f.pkg) == programOf(to):
	case n == f.floor:
		f.report(spec.Pos(), "imports %s, which stands on the same floor (%d)", to, n)
	default:
		f.report(spec.Pos(), "imports %s on floor %d, upwards from floor %d", to, n, f.floor)
	}
}

// checkUses checks what is used of an imported package.
func (f *file) checkUses(imp, name string) {
	sleep := imp == "time" && f.test && !f.virtual
	exit := imp == "os" && !f.test && f.floor <= faces
	var files []string
	if !f.test && f.floor <= library && f.pkg != "internal/vfs" {
		files = fileFuncs[imp]
	}
	if !sleep && !exit && files == nil {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != name {
			return true
		}
		switch used := sel.Sel.Name; {
		case sleep && used == "Sleep":
			f.report(sel.Pos(), "a test sleeps: wait for the event, or use virtual time in a _synctest_test.go file")
		case exit && used == "Exit":
			f.report(sel.Pos(), "os.Exit is for programs")
		case slices.Contains(files, used):
			f.report(sel.Pos(), "%s.%s is for internal/vfs", imp, used)
		}
		return true
	})
}
