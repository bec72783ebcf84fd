package link

import (
	"log/slog"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// grant makes n places, with memory for each.
func (lp *listenerPart) grant(n int, u memory.Use) {
	e := lp.e
	size := e.cfg.FirstRing
	for n > 0 {
		e.mu.Lock()
		first, count := lp.ids.take(min(n, int(memory.ChunkSize/size)))
		if count == 0 { // ids that were counted on are in use
			lp.making -= n
			lp.ungranted(n, u, noteFailed)
			e.mu.Unlock()
			return
		}
		lp.making -= count
		port, got := lp.ports.alloc(count)
		for count > got { // ports are one behind the other as well
			count /= 2
			lp.making += count
			lp.ids.give(first+lane.ID(count), count)
		}
		lp.ports.free(port+uint16(count), got-count)
		if count == 0 {
			lp.ids.give(first, 1)
			lp.making -= n - 1
			news := lp.portsUsedUp(n, u)
			e.mu.Unlock()
			if news {
				lp.reportPorts()
			}
			return
		}
		e.mu.Unlock()
		p, err := e.slab.Alloc(uint32(count)*size, u)
		why := noteFailed
		e.mu.Lock()
		if err != nil {
			e.memoryRefused()
			if why = noteNoStore; u == memory.ForStream {
				why = noteDenied
			}
		} else if e.err == nil {
			r := p.Ring()
			r.Size = size
			err = e.state.Grant(first, count, r, port)
		}
		if err != nil || e.err != nil { // going away, or out of memory
			if !p.IsZero() {
				e.freePiece(p)
			}
			lp.ids.give(first, count)
			lp.ports.free(port, count)
			lp.making -= n - count
			lp.ungranted(n, u, why)
			e.mu.Unlock()
			if why == noteDenied {
				e.owner.short(err)
			}
			return
		}
		for i := range count {
			lp.places.Set(first+lane.ID(i), p.Part(i, size))
			lp.ports.place.Set(first+lane.ID(i), port+uint16(i))
		}
		n -= count
		lp.note(noteGranted, count)
		e.settle()
		e.mu.Unlock()
	}
}

// ungranted takes n places back that could not be made. mu is held.
func (lp *listenerPart) ungranted(n int, u memory.Use, why note) {
	e := lp.e
	lp.note(why, n)
	if u == memory.ForStream {
		lp.note(noteWanted, n)
	}
	if e.err == nil {
		e.settle() // others may be asked to give some back
	}
}

// portsUsedUp has n places asked for again for which the client's address has no port left, and
// reports whether the log is to hear of it. mu is held.
func (lp *listenerPart) portsUsedUp(n int, u memory.Use) (news bool) {
	e := lp.e
	e.memory.noPorts = true
	e.watchMemory()
	if u != memory.ForStream {
		lp.ungranted(n, u, noteNoStore)
		return false
	}
	lp.ungranted(n, u, noteNoPorts)
	return lp.ports.all.usedUp(lp.ports.host)
}

// reportPorts is not owner.short, by which Accept fails: one client's ports are no concern of the others.
func (lp *listenerPart) reportPorts() {
	e := lp.e
	asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: a client's address has no port left, its dials wait: close connections, dial from another address, or have another listener",
		"listener", e.id.LocalAddr(), "client", lp.ports.host, "ports", numPorts)
}
