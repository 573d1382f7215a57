package wheel

// start starts a worker if there is a timer for it and no other worker is on its way. The caller holds mu.
//
// One at a time is enough: a worker that takes a timer and leaves others behind starts the next worker before it calls
// the function. So somebody comes for the rest even if that function never returns; and when the functions are quick,
// the workers that exist take all timers before many more have come.
func (w *Wheel) start() {
	if w.mu.starting || w.mu.closed || w.mu.ready.empty() {
		return
	}
	w.mu.starting = true
	w.running.Add(1)
	go w.worker()
}

// work calls the functions of timers that are ready until there is none; Close makes it end after the function that it
// is in.
func (w *Wheel) work() {
	defer w.running.Done() // also when a function calls runtime.Goexit
	f, ok := w.next(true)
	for ok {
		w.call(f)
		f, ok = w.next(false)
	}
}

// next takes the first timer that is ready and returns its function, or false if there is none. It is where a timer stops
// being pending: from here on Cancel reports false.
func (w *Wheel) next(fresh bool) (func(), bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fresh {
		w.mu.starting = false
	}
	if w.mu.closed || w.mu.ready.empty() {
		return nil, false
	}
	t := w.mu.ready.root.next
	t.unlink()
	w.start()
	return t.fn, true
}

// call calls f and contains its panic.
func (w *Wheel) call(f func()) {
	defer func() {
		if v := recover(); v != nil {
			w.report(v)
		}
	}()
	f()
}

func (w *Wheel) report(v any) {
	if w.onPanic == nil {
		return
	}
	defer func() { _ = recover() }()
	w.onPanic(v)
}
