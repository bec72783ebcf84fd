//go:build linux && (amd64 || arm64)

package control

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMayTalk(t *testing.T) {
	own, pid := uint32(os.Geteuid()), int32(os.Getpid())
	require.True(t, MayTalk(pid, own, false))
	require.True(t, MayTalk(pid, 0, false))
	require.False(t, MayTalk(pid, own+1, false))
	require.True(t, MayTalk(pid, own+1, true))
}

func TestMapsAll(t *testing.T) {
	require.True(t, mapsAll([]byte("         0          0 4294967295\n")))
	for _, users := range []string{"", "0 100000 65536\n", "65534 1000 1\n", "0 0 1000\n 1001 1001 4294966294\n"} {
		require.False(t, mapsAll([]byte(users)), users)
	}
}

const namespaceRole = "CONTROL_TEST_IN_NAMESPACE"

// TestUnknownUser: a user whom the namespace does not know is not one of the same number there.
func TestUnknownUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user in a namespace")
	}
	outer, inner, err := SocketPair()
	require.NoError(t, err)
	defer outer.Close()
	defer inner.Close()
	var passed *os.File
	require.NoError(t, inner.Control(func(fd uintptr) {
		d, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		passed = os.NewFile(uintptr(d), "socket")
	}))
	defer passed.Close()
	self, err := os.Open("/proc/self/exe") // its folder may be root's alone
	require.NoError(t, err)
	defer self.Close()
	const nobody = 65534
	one := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 4242, Size: 1}}
	cmd := exec.Command("/proc/self/fd/4", "-test.run=^TestInNamespace$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceRole+"=1")
	cmd.ExtraFiles = []*os.File{passed, self}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one,
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("needs user namespaces")
	}
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "was there")
}

// TestInNamespace is what the process in the namespace runs.
func TestInNamespace(t *testing.T) {
	if os.Getenv(namespaceRole) == "" {
		t.Skip("is for TestUnknownUser")
	}
	fmt.Println("was there")
	s, err := NewSocket(3)
	require.NoError(t, err)
	defer s.Close()
	pid, uid, err := s.PeerCred() // of a process of root
	require.NoError(t, err)
	require.EqualValues(t, os.Geteuid(), uid)
	require.False(t, MayTalk(pid, uid, false))
	require.True(t, MayTalk(pid, uid, true))

	a, b, err := SocketPair()
	require.NoError(t, err)
	defer a.Close()
	defer b.Close()
	pid, uid, err = a.PeerCred()
	require.NoError(t, err)
	require.True(t, MayTalk(pid, uid, false), "itself")
	other := exec.Command("/proc/self/exe", "-test.run=^$", "-test.count=1", "-test.v")
	other.Env = os.Environ()
	in, err := other.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	require.True(t, MayTalk(int32(other.Process.Pid), uid, false), "a process of its own")
	in.Close()
	require.NoError(t, other.Wait())
}
