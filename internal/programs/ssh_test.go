package programs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// sshServer serves what sshd does for -L, -R and commands, of which it has one: cat.
type sshServer struct {
	config *ssh.ServerConfig
}

func newSSHKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return signer
}

// sshBuffer holds all that a test sends in one direction. x/crypto/ssh answers some
// messages from the goroutine that reads, so two ends that both wait for room wait for
// ever, on any transport: TCP hides it behind buffers of several megabytes.
const sshBuffer = 16 << 20

// sshPair starts a server on rdmanet and returns a client that has logged in.
func sshPair(t *testing.T) (*wire, *ssh.Client) {
	t.Helper()
	w := newSizedWire(t, sshBuffer)
	host, user := newSSHKey(t), newSSHKey(t)
	s := &sshServer{config: &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), user.PublicKey().Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}}
	s.config.AddHostKey(host)
	served := make(chan error, 1)
	go func() {
		conn, err := w.Accept()
		if err == nil {
			err = s.serve(conn)
		}
		served <- err
	}()
	conn, err := w.Dial(t.Context())
	require.NoError(t, err)
	c, channels, requests, err := ssh.NewClientConn(conn, serverName, &ssh.ClientConfig{
		User: "user", Auth: []ssh.AuthMethod{ssh.PublicKeys(user)}, HostKeyCallback: ssh.FixedHostKey(host.PublicKey()),
	})
	require.NoError(t, err)
	client := ssh.NewClient(c, channels, requests)
	t.Cleanup(func() {
		_ = client.Close()
		assert.NoError(t, <-served)
	})
	return w, client
}

func (s *sshServer) serve(conn net.Conn) error {
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return err
	}
	listeners := map[string]net.Listener{}
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for channels != nil || requests != nil {
		select {
		case ch, ok := <-channels:
			if !ok {
				channels = nil
				continue
			}
			switch ch.ChannelType() {
			case "session":
				go cat(ch)
			case "direct-tcpip":
				go forward(ch)
			default:
				_ = ch.Reject(ssh.UnknownChannelType, "not here")
			}
		case r, ok := <-requests:
			if !ok {
				requests = nil
				continue
			}
			var at struct {
				Host string
				Port uint32
			}
			_ = ssh.Unmarshal(r.Payload, &at)
			key := net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))
			switch r.Type {
			case "tcpip-forward":
				l, err := net.Listen("tcp", key)
				if err != nil {
					_ = r.Reply(false, nil)
					continue
				}
				port := l.Addr().(*net.TCPAddr).Port
				listeners[net.JoinHostPort(at.Host, strconv.Itoa(port))] = l
				_ = r.Reply(true, ssh.Marshal(struct{ Port uint32 }{uint32(port)}))
				go forwardBack(c, l, at.Host, uint32(port))
			case "cancel-tcpip-forward":
				if l := listeners[key]; l != nil {
					_ = l.Close()
				}
				_ = r.Reply(listeners[key] != nil, nil)
			default:
				_ = r.Reply(false, nil)
			}
		}
	}
	_ = c.Close() // it has closed itself
	return nil
}

// cat is the command that a session can have.
func cat(ch ssh.NewChannel) {
	c, requests, err := ch.Accept()
	if err != nil {
		return
	}
	for r := range requests {
		_ = r.Reply(r.Type == "exec", nil)
		if r.Type == "exec" {
			go func() {
				_, _ = io.Copy(c, c)
				_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{3}))
				_ = c.Close()
			}()
		}
	}
}

// forward connects a channel to where its client wants it to go.
func forward(ch ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	_ = ssh.Unmarshal(ch.ExtraData(), &to)
	target, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	c, requests, err := ch.Accept()
	if err != nil {
		_ = target.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	join(c, target.(*net.TCPConn))
}

// forwardBack gives what connects to l to the client.
func forwardBack(c *ssh.ServerConn, l net.Listener, host string, port uint32) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		from := conn.RemoteAddr().(*net.TCPAddr)
		ch, requests, err := c.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
			Host       string
			Port       uint32
			OriginHost string
			OriginPort uint32
		}{host, port, from.IP.String(), uint32(from.Port)}))
		if err != nil {
			_ = conn.Close()
			continue
		}
		go ssh.DiscardRequests(requests)
		go join(ch, conn.(*net.TCPConn))
	}
}

// join carries bytes both ways until both have ended.
func join(c ssh.Channel, conn *net.TCPConn) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(c, conn)
		_ = c.CloseWrite()
	}()
	_, _ = io.Copy(conn, c)
	_ = conn.CloseWrite()
	<-back
	_ = c.Close()
	_ = conn.Close()
}

// tcpEcho is a TCP server of this host that echoes.
func tcpEcho(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
}

// echoes sends n bytes there, ends the direction and compares what comes back.
func echoes(conn net.Conn, n int, seed byte) error {
	defer conn.Close()
	data := random(n, seed)
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(data, got) {
		err = fmt.Errorf("%d of %d bytes came back, or others", len(got), n)
	}
	return err
}

func TestSSHCommand(t *testing.T) {
	_, client := sshPair(t)
	require.NoError(t, together(20, func(i int) error {
		session, err := client.NewSession()
		if err != nil {
			return err
		}
		defer session.Close()
		data := random(i*10_000, byte(i))
		var out bytes.Buffer
		session.Stdin, session.Stdout = bytes.NewReader(data), &out
		var exit *ssh.ExitError
		if err := session.Run("cat"); !errors.As(err, &exit) || exit.ExitStatus() != 3 {
			return fmt.Errorf("exit status: %w", err)
		}
		if !bytes.Equal(data, out.Bytes()) {
			return errors.New("the output is not the input")
		}
		return nil
	}))
}

// TestSSHForwarding has ssh -L: direct-tcpip.
func TestSSHForwarding(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tcpEcho(t, l)
	w, client := sshPair(t)
	require.NoError(t, together(50, func(i int) error {
		conn, err := client.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		return echoes(conn, i*4_000, byte(i))
	}))
	assert.Equal(t, 1, w.count(), "one connection carries them all")

	require.NoError(t, l.Close())
	_, err = client.Dial("tcp", l.Addr().String())
	assert.ErrorContains(t, err, "connection refused")
}

// TestSSHRemoteForwarding has ssh -R: tcpip-forward and forwarded-tcpip.
func TestSSHRemoteForwarding(t *testing.T) {
	_, client := sshPair(t)
	l, err := client.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tcpEcho(t, l)
	require.NoError(t, together(50, func(i int) error {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		return echoes(conn, i*4_000, byte(i))
	}))
	require.NoError(t, l.Close())
	_, err = net.Dial("tcp", l.Addr().String())
	assert.ErrorContains(t, err, "connection refused")
}
