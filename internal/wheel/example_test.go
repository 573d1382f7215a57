package wheel_test

import (
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/wheel"
)

// A request with a timeout: whoever comes first, the answer or the timer, completes it.
func ExampleWheel() {
	w := wheel.New(wheel.Options{OnPanic: func(v any) { fmt.Println("panic:", v) }})
	defer w.Close()

	type request struct {
		timeout wheel.Timer
		result  chan string
	}
	request1 := &request{result: make(chan string, 1)}
	request1.timeout.Init(func() { request1.result <- "timed out" })

	w.Schedule(&request1.timeout, time.Hour)
	if w.Cancel(&request1.timeout) { // the answer is here in time
		request1.result <- "answered"
	}
	fmt.Println(<-request1.result)

	w.Schedule(&request1.timeout, 5*time.Millisecond)
	fmt.Println(<-request1.result)
	// Output:
	// answered
	// timed out
}
