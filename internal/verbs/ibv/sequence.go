//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "sync"

// A sequence runs jobs one at a time, in the order in which they came, on a goroutine that ends when
// there are none. How many calls of the libraries the jobs of all make at a time is a matter of
// slots: of a job that waits for one, nobody else's waits.
type sequence struct {
	mu      sync.Mutex
	running bool
	jobs    []func()
}

// run has the job done when those before it are. It does not wait.
func (s *sequence) run(job func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, job)
	if !s.running {
		s.running = true
		go s.work()
	}
}

func (s *sequence) work() {
	for job := s.next(); job != nil; job = s.next() {
		job()
	}
}

// next is the next job, or nil, and then the goroutine is over.
func (s *sequence) next() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		s.running, s.jobs = false, nil
		return nil
	}
	job := s.jobs[0]
	s.jobs[0] = nil
	s.jobs = s.jobs[1:]
	return job
}
