package link

import "github.com/rdmanet/go-rdmanet/internal/link/memory"

// A ring with chunks of its own is dear: to back it with pages takes as long as to move through it several
// times what fills it, and many that are used in turn push one another out of the caches. It fills up also
// where the reader only has no processor for a moment. So while a Read is in progress, which takes what there
// is, such a ring makes place for a larger one only when the stream has received as much as that one holds.

// holdsBack reports whether the stream gets no larger ring for now. What arrives when no Read is in progress
// has it looked at again, and if nothing may arrive endReading does so: the program may read no more. mu is held.
func (s *stream) holdsBack() bool {
	rx := s.st.Receiver()
	size := rx.Ring().Size
	hold := s.in.turn.taken && size >= memory.ChunkSize && rx.ReceivedBytes() < uint64(s.larger())
	s.in.heldBack = s.in.heldBack || hold
	return hold
}

// endReading ends a call's turn to read. mu is held.
func (s *stream) endReading() {
	s.in.turn.end()
	if s.in.heldBack && !s.in.turn.taken && s.st.Receiver().Full() {
		s.in.heldBack = false
		if s.st.Receiver().WantsRing() {
			s.e.growDue(s)
		}
	}
}
