package broker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Every name in an engine's directory.
const (
	fileRunnel    = "RUNNEL"
	fileRunnelNew = "RUNNEL.new"
	fileLock      = "LOCK"
	fileBallast   = "BALLAST"
	dirMeta       = "meta"
	dirTopics     = "topics"
	dirQuarantine = "quarantine"

	suffixDelete = "-delete"
	suffixStray  = "-stray"
)

// RUNNEL is three lines of text: the format and its version, a random id of the engine, and whether the metadata store has been made. It is
// written with "meta new" before the store is made and replaced by "meta made" after, so that a store that is missing later is known to be
// lost, while a crash in between only means to begin again.
const (
	formatLine = "runnel 1\n"
	metaNew    = "meta new\n"
	metaMade   = "meta made\n"
)

// mkdir makes a directory and its missing parents, durably.
func mkdir(fsys vfs.FS, dir string) error {
	if info, err := fsys.Stat(dir); err == nil {
		if !info.Dir {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := path.Dir(dir)
	if parent != dir {
		if err := mkdir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

func (o *Options) lockDir() (io.Closer, error) {
	if err := mkdir(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	lock, err := o.FS.Lock(path.Join(o.Dir, fileLock))
	var held *vfs.LockedError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: %w", kafka.ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	return lock, nil
}

// openMeta opens the metadata store of a locked directory and makes the directories that are missing.
// trouble is called when the store needs healing.
func (o *Options) openMeta(trouble func()) (*meta.Store, error) {
	made, err := o.readRunnel()
	if err != nil {
		return nil, err
	}
	dir := o.metaDir()
	_, err = o.FS.Stat(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	if made && missing {
		return nil, fmt.Errorf("%w: %s is there, but the metadata in %s is missing", kafka.ErrCorrupt, fileRunnel, dirMeta)
	}
	if !made {
		// Names that an earlier Open has made and a stop has kept from being synced look as if they were durable.
		for dir := o.Dir; path.Dir(dir) != dir; dir = path.Dir(dir) {
			if err := o.FS.SyncDir(path.Dir(dir)); errors.Is(err, fs.ErrPermission) {
				break // then we have not made it
			} else if err != nil {
				return nil, err
			}
		}
	}
	for _, d := range []string{dirTopics, dirMeta} {
		if err := mkdir(o.FS, path.Join(o.Dir, d)); err != nil {
			return nil, err
		}
	}
	s, err := meta.Open(meta.Options{FS: o.FS, Dir: dir, Create: !made, Ballast: path.Join(o.Dir, fileBallast), Trouble: trouble})
	if err != nil {
		return nil, err
	}
	if !made {
		if err := o.markMade(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (o *Options) metaDir() string { return path.Join(o.Dir, dirMeta) }

// readRunnel reads RUNNEL, writing it if it is missing or if a crash left it torn before there was anything else.
func (o *Options) readRunnel() (made bool, err error) {
	name := path.Join(o.Dir, fileRunnel)
	text, err := readText(o.FS, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil {
		if made, known, err := parseRunnel(text); known || err != nil {
			return made, err
		}
	}
	for _, d := range []string{dirMeta, dirTopics} {
		if infos, err := o.FS.List(path.Join(o.Dir, d)); err == nil && len(infos) > 0 {
			return false, fmt.Errorf("%w: %s is missing or damaged, but %s is not empty", kafka.ErrCorrupt, fileRunnel, d)
		}
	}
	return false, o.writeRunnel(metaNew)
}

// parseRunnel reads the text of RUNNEL; known is false if it is none, torn by a crash or damaged.
func parseRunnel(text string) (made, known bool, err error) {
	switch ours := strings.HasPrefix(text, formatLine); {
	case ours && strings.HasSuffix(text, metaMade):
		return true, true, nil
	case ours && strings.HasSuffix(text, metaNew):
		return false, true, nil
	case !ours && strings.HasPrefix(text, "runnel "):
		line, _, _ := strings.Cut(text, "\n")
		return false, false, fmt.Errorf("%w: the directory has format %q, this version reads %q", kafka.ErrUnsupported, line, strings.TrimSpace(formatLine))
	}
	return false, false, nil
}

func (o *Options) writeRunnel(state string) error {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	return o.replaceRunnel(formatLine + "id " + hex.EncodeToString(id[:]) + "\n" + state)
}

func (o *Options) markMade() error {
	text, err := readText(o.FS, path.Join(o.Dir, fileRunnel))
	if err != nil {
		return err
	}
	return o.replaceRunnel(strings.TrimSuffix(text, metaNew) + metaMade)
}

func (o *Options) replaceRunnel(text string) (err error) {
	tmp := path.Join(o.Dir, fileRunnelNew)
	if err := o.FS.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := o.FS.Create(tmp, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt([]byte(text), 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := o.FS.Rename(tmp, path.Join(o.Dir, fileRunnel)); err != nil {
		return err
	}
	return o.FS.SyncDir(o.Dir)
}

func readText(fsys vfs.FS, name string) (string, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return "", err
	}
	b := make([]byte, min(f.Size(), 4096))
	n, err := f.ReadAt(b, 0)
	if n == len(b) {
		err = nil
	}
	return string(b[:n]), errors.Join(err, f.Close())
}
