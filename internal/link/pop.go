package link

// pop takes the first of a queue that is not empty. The array under it refers to that no more.
func pop[T any](queue *[]*T) *T {
	q := *queue
	first := q[0]
	q[0] = nil
	*queue = q[1:]
	return first
}
