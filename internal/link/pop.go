package link

// pop takes the first of a queue that is not empty. The array under it refers to that no more, and
// is used again once the queue is empty.
func pop[T any](queue *[]T) T {
	var none T
	q := *queue
	first := q[0]
	q[0] = none
	if len(q) == 1 {
		*queue = q[:0]
	} else {
		*queue = q[1:]
	}
	return first
}
