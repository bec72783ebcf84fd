//go:build !linux

package fdtimer

func newAlarm() alarm { return newGoAlarm() }
