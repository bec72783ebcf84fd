package lane

// A Table has something for each stream of a lane, by its id. A listener gives ids from 1 on and
// uses those again that have come back, so a Table is as long as there have been streams at once,
// and not as there may be. The zero value is empty.
type Table[T any] []T

// At returns what Set has put there for id, or the zero value.
func (t Table[T]) At(id ID) (v T) {
	if int(id) < len(t) {
		v = t[id]
	}
	return v
}

// Set puts v there for id.
func (t *Table[T]) Set(id ID, v T) { *t.ref(id) = v }

// ref returns where the value for id is until the next call of ref or Set.
func (t *Table[T]) ref(id ID) *T {
	if int(id) >= len(*t) {
		t.grow(id)
	}
	return &(*t)[id]
}

func (t *Table[T]) grow(id ID) { *t = append(*t, make([]T, int(id)+1-len(*t))...) }
