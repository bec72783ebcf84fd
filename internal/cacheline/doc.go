// Package cacheline is about how processors pass memory to each other: by lines. What one writes takes as
// long to come over to another as a hundred instructions. So what different processors write to at once
// is to lie in different lines, and what is needed soon can be asked for before that.
package cacheline

// Size is the length of a line in bytes, of most processors: of some it is twice that. Lines begin at
// multiples of it.
const Size = 64
