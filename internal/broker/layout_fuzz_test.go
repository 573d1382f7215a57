package broker

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// F16: any bytes as RUNNEL say that the store is made, that it is new, or are a typed error; without a store beside it,
// what is torn is written anew. What is written reads back.
func FuzzRunnelFile(f *testing.F) {
	const id = "id 4249b135c0cef548d156d238f6af4039\n"
	f.Add([]byte(formatLine+id+metaMade), true)
	f.Add([]byte(formatLine+id+metaNew), false)
	f.Add([]byte("runnel 2\n"+id+metaMade), true)
	f.Add([]byte(formatLine), true)
	f.Add([]byte("runnel"), false)
	f.Add(make([]byte, 64), true)
	f.Add([]byte(strings.Repeat("x", 5000)+metaMade), false)
	f.Fuzz(func(t *testing.T, text []byte, store bool) {
		fs := vfs.NewMemory()
		defer fs.Close()
		o := &Options{FS: fs, Dir: root}
		check(t, mkdir(fs, path.Join(root, dirMeta)))
		if store {
			put, err := fs.Create(path.Join(root, dirMeta, "x"), 0)
			check(t, err)
			check(t, put.Close())
		}
		file, err := fs.Create(path.Join(root, fileRunnel), 0)
		check(t, err)
		if len(text) > 0 {
			_, err = file.WriteAt(text, 0)
			check(t, err)
		}
		check(t, file.Close())

		made, err := o.readRunnel()
		switch {
		case errors.Is(err, kafka.ErrUnsupported):
			if !strings.HasPrefix(string(text), "runnel ") || strings.HasPrefix(string(text), formatLine) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		case errors.Is(err, kafka.ErrCorrupt):
			if !store {
				t.Fatalf("%q with nothing beside it: %v", text, err)
			}
			return
		case err != nil:
			t.Fatalf("%q: %v", text, err)
		case made && !strings.HasPrefix(string(text), formatLine):
			t.Fatalf("%q: made", text)
		case made:
			return
		}

		// New, or written anew: from here on it goes its way.
		again, err := o.readRunnel()
		if err != nil || again {
			t.Fatalf("%q, then read again: made %t, error %v", text, again, err)
		}
		check(t, o.markMade())
		if made, err := o.readRunnel(); !made || err != nil {
			t.Fatalf("%q, then marked as made: made %t, error %v", text, made, err)
		}
	})
}
