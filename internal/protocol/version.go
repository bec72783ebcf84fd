// Package protocol has the version of the protocol that docs/PROTOCOL.md specifies, for
// all who name it on the wire.
package protocol

// Version is the version that this library speaks, and the only one. First words and
// refusals have it.
const Version = 1
