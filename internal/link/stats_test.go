package link

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestNoCountIsForgotten: a stream that was dialled again has all counts of what it was, but for those that are told
// of the bytes in its rings, and of the Write that waits, which are of what it is now.
func TestNoCountIsForgotten(t *testing.T) {
	ofNow := map[string]bool{"stalled": true, "framingIn": true, "framingOut": true, "placedIn": true, "discarded": true}
	fields := func(of any, each func(name string, n reflect.Value)) {
		v := reflect.ValueOf(of).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() != reflect.Pointer {
				each(v.Type().Field(i).Name, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
			}
		}
	}
	number := func(n reflect.Value) int64 {
		if n.CanUint() {
			return int64(n.Uint())
		}
		return n.Int()
	}
	was := counts{rare: new(rareCounts)}
	next := int64(0)
	want := map[string]int64{}
	for _, of := range []any{&was, was.rare} {
		fields(of, func(name string, n reflect.Value) {
			next++
			n.Set(reflect.ValueOf(next).Convert(n.Type()))
			if want[name] = next; ofNow[name] {
				want[name] = 0
			}
		})
	}
	now := was.rare.stalled + time.Second
	want["stalls"]++ // the Write that waits
	want["stallTime"] += int64(time.Second)
	until := was.until(now)
	s := &stream{}
	for times := int64(1); times <= 2; times++ {
		s.add(&until)
		for _, of := range []any{&s.counts, s.counts.rare} {
			fields(of, func(name string, n reflect.Value) { require.Equal(t, times*want[name], number(n), name) })
		}
	}
	s = &stream{}
	s.add(&counts{sent: 1})
	require.Nil(t, s.counts.rare, "most streams have none")
}
