package cm

import (
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRefusalRoundTrip(t *testing.T) {
	for _, r := range []Refusal{
		NewRefusal(RefusedVersion, ""),
		NewRefusal(RefusedBusy, "128 connections wait"),
		NewRefusal(RefusedShutdown, strings.Repeat("x", MaxRefusalText)),
		{Version: 255, MinVersion: 3, Code: 65535, Text: "grüße"},
	} {
		b, err := r.MarshalBinary()
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), MaxRejectPrivateData)
		for _, pad := range []int{0, 1, MaxRejectPrivateData - len(b)} {
			got, err := ParseRefusal(append(b, make([]byte, pad)...))
			require.NoError(t, err)
			require.Equal(t, r, got)
		}
	}
}

func TestRefusalTextIsCutToSize(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", 121):       strings.Repeat("x", 120),
		strings.Repeat("x", 119) + "ü": strings.Repeat("x", 119),
		strings.Repeat("ü", 61):        strings.Repeat("ü", 60),
		"before\x00after":              "before",
		"bad \xff byte":                "bad \uFFFD byte",
	} {
		r := NewRefusal(RefusedResources, text)
		b, err := r.MarshalBinary()
		require.NoError(t, err)
		got, err := ParseRefusal(b)
		require.NoError(t, err)
		require.Equal(t, want, got.Text)
	}
}

func TestRefusalIsChecked(t *testing.T) {
	ok := NewRefusal(RefusedBusy, "text")
	good, err := ok.MarshalBinary()
	require.NoError(t, err)
	with := func(offset int, c byte) []byte {
		b := append([]byte(nil), good...)
		b[offset] = c
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "0 bytes"},
		{"short", good[:7], "7 bytes"},
		{"another protocol", with(3, 'N'), "begins with"},
		{"version 0", with(4, 0), "versions 1 to 0"},
		{"min version 0", with(5, 0), "versions 0 to 1"},
		{"code 0", with(6, 0), "code 0"},
		{"garbage behind", append(append([]byte(nil), good...), 0, 'x'), "past the end of its text"},
		{"not UTF-8", with(9, 0xff), "not UTF-8"},
		{"too long", append(append([]byte(nil), good...), strings.Repeat("x", 117)...), "text of 121 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseRefusal(c.b)
			var me *MalformedError
			require.ErrorAs(t, err, &me)
			require.ErrorIs(t, err, verbs.ErrProtocol)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "malformed refusal")
		})
	}
	for _, r := range []Refusal{{Version: 1, MinVersion: 1}, {Version: 1, Code: 1}, {Version: 1, MinVersion: 2, Code: 1}} {
		b, err := r.AppendBinary([]byte("x"))
		require.ErrorIs(t, err, verbs.ErrProtocol)
		require.Equal(t, "x", string(b))
	}
}

func TestRefusedError(t *testing.T) {
	for code, target := range map[RefusalCode]error{
		RefusedVersion:      ErrVersion,
		RefusedMalformed:    verbs.ErrProtocol,
		RefusedResources:    verbs.ErrNoMemory,
		RefusedNotPermitted: syscall.EACCES,
		RefusedChecksum:     ErrNoChecksum,
	} {
		err := &RefusedError{NewRefusal(code, "")}
		require.ErrorContains(t, err, "the peer refuses: "+code.String())
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorIs(t, err, target)
		for _, other := range []error{ErrVersion, verbs.ErrProtocol, verbs.ErrNoMemory, syscall.EACCES, ErrNoChecksum} {
			if other != target {
				require.NotErrorIs(t, err, other)
			}
		}
	}
	require.EqualError(t, &RefusedError{NewRefusal(RefusedBusy, "\x1b[31mred")},
		`the peer refuses: too many connections are waiting to be accepted: "\x1b[31mred"`)
	require.EqualError(t, &RefusedError{Refusal{Version: 4, MinVersion: 2, Code: RefusedVersion}},
		"the peer refuses: no common protocol version, it speaks version 2 to 4, this end 1")
	require.EqualError(t, &RefusedError{NewRefusal(RefusedShutdown, "")}, "the peer refuses: shutting down")
	require.NotErrorIs(t, &RefusedError{}, ErrVersion)
	require.EqualError(t, &RefusedError{NewRefusal(99, "")}, "the peer refuses: refusal code 99")
}

func FuzzParseRefusal(f *testing.F) {
	r := NewRefusal(RefusedBusy, "text")
	b, err := r.MarshalBinary()
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRefusal(b)
		if err != nil {
			return
		}
		require.True(t, utf8.ValidString(r.Text))
		require.LessOrEqual(t, len(r.Text), MaxRefusalText)
		again, err := r.MarshalBinary()
		require.NoError(t, err)
		same, err := ParseRefusal(again)
		require.NoError(t, err)
		require.Equal(t, r, same)
	})
}
