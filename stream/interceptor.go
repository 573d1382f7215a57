package stream

// ProducerInterceptor sees a producer's records on their way (interceptor.classes). It is called by all goroutines that produce, and by the one that runs promises. A panic in it is contained and
// logged; the record goes on.
type ProducerInterceptor interface {
	// OnSend is called before the partition is chosen. r is a copy of the caller's record that may be changed; the bytes that it points to may not.
	OnSend(r *Record)
	// OnAcknowledgement is called with what became of a record, before its promise, or before the call returns.
	OnAcknowledgement(r Receipt, err error)
}

// intercepted is the record that is sent in place of r.
func (p *producer) intercepted(r *Record) *Record {
	if len(p.c.Interceptors) == 0 {
		return r
	}
	own := *r
	for _, i := range p.c.Interceptors {
		p.contained(func() { i.OnSend(&own) })
	}
	return &own
}

// acknowledged tells the interceptors what became of a record.
func (p *producer) acknowledged(rec Receipt, err error) {
	for _, i := range p.c.Interceptors {
		p.contained(func() { i.OnAcknowledgement(rec, err) })
	}
}

func (p *producer) contained(fn func()) {
	defer func() {
		if v := recover(); v != nil {
			p.e.o.Logger.Error("interceptor panicked", "panic", v)
		}
	}()
	fn()
}
