package link

import (
	"errors"
	"log/slog"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

// work is what has to be done for a lane and may block. Its worker does it, a goroutine that lives
// as long as there is any. The lane's lock guards it.
type work struct {
	running bool
	notify  bool      // tell the connection manager that the dialer has spoken
	trim    bool      // give empty chunks back
	grant   int       // so many places
	wanted  int       // of them, for dials that wait
	resize  []*stream // they get a larger ring, or a small one
	stage   bool      // more send memory
}

func (w *work) any() bool { return w.notify || w.trim || w.grant > 0 || w.stage || len(w.resize) > 0 }

// startWorker starts the worker if there is work. It is to be called without mu, after whatever may
// have made some.
func (e *laneEnd) startWorker() {
	if e.unseen.Load() && e.unseen.CompareAndSwap(true, false) && e.begin() {
		e.see()
		e.tasks.Done()
	}
	if !e.hasWork.Load() {
		return
	}
	e.mu.Lock()
	start := e.work.any() && !e.work.running && e.err == nil
	if start {
		e.work.running = true
		e.tasks.Add(1)
	}
	e.mu.Unlock()
	if start {
		go e.worker()
	}
}

// worker works until nothing is left.
func (e *laneEnd) worker() {
	defer e.tasks.Done()
	for {
		e.mu.Lock()
		w := e.work
		e.work = work{running: true}
		e.listener.making = w.grant
		if !w.any() || e.err != nil {
			e.work.running = false
			e.hasWork.Store(false)
			e.mu.Unlock()
			e.startWorker() // where there was no room to post
			return
		}
		e.mu.Unlock()
		if w.notify {
			if err := e.id.Notify(); err != nil {
				asynclog.Log(e.cfg.logger(), slog.LevelDebug, "link: notify", "err", err)
			}
		}
		e.listener.grant(w.wanted, memory.ForStream)
		for _, s := range w.resize {
			e.resize(s)
		}
		e.listener.grant(w.grant-w.wanted, memory.ForPlace)
		if w.stage {
			e.growStaging()
		}
		if w.trim {
			if err := errors.Join(e.slab.Trim(), e.buffers.slab.Trim()); err != nil {
				asynclog.Log(e.cfg.logger(), slog.LevelWarn, "link: giving back memory", "err", err)
			}
		}
	}
}
