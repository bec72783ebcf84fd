//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "sync"

// workers run jobs on a bounded number of goroutines, which end when there is nothing
// to do. Jobs begin in the order in which they came.
type workers struct {
	most int

	mu      sync.Mutex
	running int
	jobs    []func()
}

// run has a worker do the job. It does not wait.
func (w *workers) run(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == w.most {
		w.jobs = append(w.jobs, job)
		return
	}
	w.running++
	go w.work(job)
}

func (w *workers) work(job func()) {
	for job != nil {
		job()
		job = w.next()
	}
}

// next is the next job, or nil, and then this worker counts no more.
func (w *workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) == 0 {
		w.running--
		w.jobs = nil // a crowd leaves no memory behind
		return nil
	}
	job := w.jobs[0]
	w.jobs[0] = nil
	w.jobs = w.jobs[1:]
	return job
}

// A sequence is jobs of which one runs at a time, in order, on one worker or another.
type sequence struct {
	mu      sync.Mutex
	running bool
	jobs    []func()
}

// run has the workers do the job when those before it are done. It does not wait.
func (s *sequence) run(w *workers, job func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, job)
	if !s.running {
		s.running = true
		w.run(func() { s.turn(w) })
	}
}

// turn does one job, so that nobody has a worker to himself.
func (s *sequence) turn(w *workers) {
	s.mu.Lock()
	job := s.jobs[0]
	s.jobs[0] = nil
	s.jobs = s.jobs[1:]
	s.mu.Unlock()
	job()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		s.running, s.jobs = false, nil
		return
	}
	w.run(func() { s.turn(w) })
}
