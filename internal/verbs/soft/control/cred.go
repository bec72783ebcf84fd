//go:build linux && (amd64 || arm64)

package control

import "os"

// MayTalk reports whether a process of user uid is trusted with shared memory. SO_PEERCRED
// gives the effective user at the time of connect(2) or listen(2).
func MayTalk(uid uint32, anyUser bool) bool {
	return anyUser || uid == 0 || int(uid) == os.Geteuid()
}
