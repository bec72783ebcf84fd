// Package hello has the first word that each end of a lane says, in the private data of the
// connection manager (docs/PROTOCOL.md, section 2), and the ids by which the lanes of a link are known
// to belong together. It encodes and decodes, keeps nothing, and imports nothing of ours but cm,
// internal/verbs/driver and ring/lane.
package hello
