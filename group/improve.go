package group

import "slices"

// improve makes an assignment the best one: the loads are as even as the subscriptions allow, that is the sum of their squares is least, and of those assignments it is one that moves the
// fewest partitions from their owners.
//
// It is a flow of least cost. Members are nodes. A partition that can go from a to b, since b subscribes to its topic, is an edge that costs what it does to the number of
// moves: 1 from its owner, -1 to its owner, else 0. One more node stands for the outside: leaving it to a takes a partition off a's load, coming to it from b puts one on b's. As long as there is
// a cycle of negative cost the assignment can be improved, by moving one partition along each edge of it; without one it is the best.
//
// Each search takes time that grows with the cube of the number of members; there are few of them, as level has done most.
func (b *balance) improve() {
	for {
		g := b.graph()
		cycle := g.negativeCycle()
		if cycle == nil {
			return
		}
		for i, from := range cycle {
			to := cycle[(i+1)%len(cycle)]
			if from != g.outside() && to != g.outside() {
				b.move(from, to, g.edges[from][to].p)
			}
		}
	}
}

func (b *balance) move(from, to int, p place) {
	i := slices.Index(b.held[from], p)
	b.held[from] = slices.Delete(b.held[from], i, i+1)
	b.held[to] = append(b.held[to], p)
}

// edge is the cheapest way to move a partition from one member to another.
type edge struct {
	there bool
	cost  int64
	p     place
}

// graph has the members as nodes, and the outside as the last one.
type graph struct{ edges [][]edge }

func (g *graph) outside() int { return len(g.edges) - 1 }

func (b *balance) graph() *graph {
	n := len(b.held)
	g := &graph{edges: make([][]edge, n+1)}
	for i := range g.edges {
		g.edges[i] = make([]edge, n+1)
	}
	better := int64(b.total() + 1) // what one less in the sum of squares is worth: more than all moves
	for from, ps := range b.held {
		load := int64(len(ps))
		if load > 0 {
			g.edges[n][from] = edge{there: true, cost: better * (1 - 2*load)}
		}
		g.edges[from][n] = edge{there: true, cost: better * (1 + 2*load)}
		for _, p := range ps {
			home := b.home[p.topic][p.partition]
			for _, to := range b.subs[p.topic] {
				if to == from {
					continue
				}
				cost := int64(0)
				switch home {
				case from:
					cost = 1
				case to:
					cost = -1
				}
				if e := &g.edges[from][to]; !e.there || cost < e.cost {
					*e = edge{true, cost, p}
				}
			}
		}
	}
	return g
}

// negativeCycle returns the nodes of a cycle of negative cost, in order, or nil (Bellman and Ford). The ways back are looked through after each round: as soon as one of them closes, it is such a cycle.
func (g *graph) negativeCycle() []int {
	n := len(g.edges)
	dist, before := make([]int64, n), make([]int, n)
	for i := range before {
		before[i] = -1
	}
	for changed := true; changed; {
		changed = false
		for from := range n {
			for to := range n {
				if e := &g.edges[from][to]; e.there && dist[from]+e.cost < dist[to] {
					dist[to] = dist[from] + e.cost
					before[to] = from
					changed = true
				}
			}
		}
		if cycle := closed(before); cycle != nil {
			return cycle
		}
	}
	return nil
}

// closed returns a cycle of the ways back, in the order of the ways forth, or nil.
func closed(before []int) []int {
	seen := make([]int, len(before)) // by which walk, from 1
	for start := range before {
		at := start
		for at >= 0 && seen[at] == 0 {
			seen[at] = start + 1
			at = before[at]
		}
		if at < 0 || seen[at] != start+1 {
			continue
		}
		cycle := []int{at}
		for next := before[at]; next != at; next = before[next] {
			cycle = append(cycle, next)
		}
		slices.Reverse(cycle)
		return cycle
	}
	return nil
}
