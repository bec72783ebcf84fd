package rdmanet

// Checksum reports whether the connection has checksums, by the wish of either end.
func (c *Conn) Checksum() bool { return c.ok() && c.stream.hasChecksum() }
