package vfs

// Usage is what a file system takes from its process.
type Usage struct {
	Maps    int // mappings that exist
	MaxMaps int // and how many may: beyond them files are read and written by pread and pwrite
}

// UsageOf returns what fsys takes. Only Disk takes anything.
func UsageOf(fsys FS) Usage {
	if u, ok := fsys.(interface{ Usage() Usage }); ok {
		return u.Usage()
	}
	return Usage{}
}

// Usage is for UsageOf.
func (d *disk) Usage() Usage { return Usage{Maps: int(d.maps.Load()), MaxMaps: int(d.maxMaps)} }
