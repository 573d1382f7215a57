package group

import (
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Leave takes a member out of its group at once (LeaveGroup); with an instance id and no member id, the static member of that name. What it has is shared by the others in the next generation.
//
// Errors: kafka.ErrUnknownMember, ErrFencedInstance, ErrClosed.
func (c *Coordinator) Leave(group, memberID, instanceID string) error {
	g, err := c.enter(group, false)
	if err != nil {
		return err
	}
	if g == nil {
		return fmt.Errorf("%w: %s", kafka.ErrUnknownMember, memberID)
	}
	defer g.unlock()
	if a := g.pending[memberID]; a != nil {
		a.cancel()
		delete(g.pending, memberID)
		g.tryComplete()
		g.release()
		return nil
	}
	m := g.byID(memberID)
	if s := g.byInstance(instanceID); s != nil {
		if memberID != "" && s.id != memberID {
			return fencedInstance(instanceID)
		}
		m = s
	}
	if m == nil || instanceID != "" && m.instance != instanceID {
		return fmt.Errorf("%w: %s", kafka.ErrUnknownMember, memberID)
	}
	if memberID != "" {
		m.notify = nil // it knows
	}
	g.removeAndGoOn(m, kafka.ErrUnknownMember)
	return nil
}

// Detach is for a native static member that closes: it keeps its place for its session timeout, within which its next life may take it.
func (c *Coordinator) Detach(group, memberID string) {
	g, err := c.enter(group, false)
	if g == nil || err != nil {
		return
	}
	defer g.unlock()
	m := g.byID(memberID)
	if m == nil {
		return
	}
	m.notify = nil
	g.answerJoin(m, Joined{Err: kafka.ErrClosed, MemberID: m.id, Generation: -1})
	g.answerSync(m, Synced{Err: kafka.ErrClosed})
	m.session.set(m.sessionTimeout)
}
