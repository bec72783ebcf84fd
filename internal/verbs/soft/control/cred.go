//go:build linux && (amd64 || arm64)

package control

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"sync"
)

// MayTalk reports whether process pid of user uid is trusted with shared memory. SO_PEERCRED
// gives the process, and its effective user, at the time of connect(2) or listen(2).
func MayTalk(pid int32, uid uint32, anyUser bool) bool {
	return anyUser || uid == 0 || SameUser(pid, uid)
}

// SameUser reports whether process pid, whose user the kernel says is uid, is of the user of this one.
//
// In a user namespace the kernel gives one number to all users that are not known there
// (user_namespaces(7), "Unmapped user and group IDs"). Where that is the user's own number, as of nobody,
// only processes of the same namespace are of the same user for certain.
func SameUser(pid int32, uid uint32) bool {
	if int(uid) != os.Geteuid() {
		return false
	}
	return uid != strangers() || int(pid) == os.Getpid() || sameUserNamespace(pid)
}

// strangers is the number that users have who are not known in the user namespace, math.MaxUint32 where all
// are known.
var strangers = sync.OnceValue(func() uint32 {
	if users, err := os.ReadFile("/proc/self/uid_map"); err == nil && mapsAll(users) {
		return math.MaxUint32
	}
	var uid uint32
	b, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	if _, err := fmt.Sscan(string(b), &uid); err == nil {
		return uid
	}
	return 65534
})

// mapsAll reports whether a uid_map has all users: that of the first namespace does.
func mapsAll(users []byte) bool {
	return string(bytes.Join(bytes.Fields(users), []byte(" "))) == "0 0 4294967295"
}

// sameUserNamespace reports whether process pid is known to be in the user namespace of this one. The kernel
// tells only of processes that this one may trace, which those of other users are not.
func sameUserNamespace(pid int32) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	return err == nil && other == own
}
