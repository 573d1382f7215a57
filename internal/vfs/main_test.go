package vfs

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// lockChild names the lock that this binary is to take, and hold until its standard input ends, instead of running tests.
const lockChild = "RUNNEL_VFS_LOCK_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(lockChild); name != "" {
		l, err := NewDisk().Lock(name)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		_, _ = os.Stdin.Read(make([]byte, 1))
		l.Close()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
