package batch

import (
	"testing"

	"go.uber.org/goleak"
)

// F1: encoders and decoders leave no goroutine behind, though nobody closes them.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
