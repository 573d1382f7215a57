package group

import (
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Description is what a group is at one moment.
type Description struct {
	Group        string
	State        State
	ProtocolType string
	Protocol     string
	Generation   int32
	Leader       string
	EmptySince   int64 // ms, 0 while it has members
	Members      []MemberDescription
}

// MemberDescription is what a member of it is.
type MemberDescription struct {
	ID, InstanceID, ClientID, Host string
	Native                         bool
	Metadata, Assignment           []byte // not to be changed
	Waiting                        bool   // it has joined, and waits for the others
}

// Describe describes a group: Dead if it was never written and has no members.
func (c *Coordinator) Describe(name string) (Description, error) {
	g, err := c.enter(name, false)
	if err != nil {
		return Description{}, err
	}
	if g == nil {
		r, ok, err := c.o.Store.Group(name)
		d := Description{Group: name, State: Dead}
		if ok {
			d = Description{Group: name, State: Empty, ProtocolType: r.Type, Generation: r.Generation, EmptySince: r.EmptySince}
		}
		return d, err
	}
	defer g.unlock()
	d := Description{Group: name, State: g.state, ProtocolType: g.kind, Protocol: g.proto, Generation: g.number, Leader: g.leader, EmptySince: g.empty}
	for _, m := range g.members {
		md := MemberDescription{ID: m.id, InstanceID: m.instance, ClientID: m.client, Host: m.host, Native: m.native, Assignment: m.assignment, Waiting: m.joining != nil}
		if p := m.protocol(g.proto); p != nil {
			md.Metadata = p.Metadata
		} else if len(m.protocols) > 0 { // before the first generation
			md.Metadata = m.protocols[0].Metadata
		}
		d.Members = append(d.Members, md)
	}
	return d, nil
}

// Names returns the groups that have been written or have members, in no order.
func (c *Coordinator) Names() ([]string, error) {
	all, err := c.o.Store.Groups()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, kafka.ErrClosed
	}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	for n := range c.mu.groups {
		if _, both := all[n]; !both {
			names = append(names, n)
		}
	}
	return names, nil
}

// Delete calls fn, which removes what is kept of a group, while the group has no members and gets none. Errors: fn's; kafka.ErrGroupNotEmpty, ErrClosed.
func (c *Coordinator) Delete(name string, fn func() error) error {
	g, err := c.enter(name, true)
	if err != nil {
		return err
	}
	defer g.unlock()
	if len(g.members) > 0 || len(g.pending) > 0 {
		return fmt.Errorf("%w: %s", kafka.ErrGroupNotEmpty, name)
	}
	if err = fn(); err == nil {
		g.unwritten = false
	}
	g.release()
	return err
}
