package crashtest

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"os"

	"github.com/runnelmq/runnel/internal/vfs"
)

// An imageFile is what is written of a failure: one of the kinds of image, and its disk.
type imageFile struct {
	Log      *logImage
	Engine   *engineImage
	Mutation *mutationImage
	Hint     *hintImage
	Disk     []byte
}

func saveImage(dir string, disk *vfs.Sim, f imageFile) (name string, err error) {
	var dump bytes.Buffer
	if err := disk.Dump(&dump); err != nil {
		return "", err
	}
	f.Disk = dump.Bytes()
	file, err := os.CreateTemp(dir, "runnel-crash-*.image")
	if err != nil {
		return "", err
	}
	err = gob.NewEncoder(file).Encode(f)
	return file.Name(), errors.Join(err, file.Close())
}

// Replay checks the image in a file that a campaign has written.
func Replay(file []byte) error {
	var f imageFile
	if err := gob.NewDecoder(bytes.NewReader(file)).Decode(&f); err != nil {
		return err
	}
	disk, err := vfs.LoadSim(bytes.NewReader(f.Disk))
	if err != nil {
		return err
	}
	var n int
	switch {
	case f.Log != nil:
		f.Log.disk, f.Log.place = disk, "replay"
		return f.Log.check(&n)
	case f.Engine != nil:
		f.Engine.disk, f.Engine.place = disk, "replay"
		return f.Engine.check(&n)
	case f.Mutation != nil:
		f.Mutation.disk = disk
		return f.Mutation.replay(context.Background())
	case f.Hint != nil:
		f.Hint.disk = disk
		return f.Hint.check()
	}
	return errors.New("no image")
}
