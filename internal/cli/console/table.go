package console

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is a small table whose columns stand as wide as their widest cell,
// aligned to the right.
type Table struct {
	rows   [][]string
	widths []int
}

// Header sets the names of the columns. It comes before every Row.
func (t *Table) Header(names ...string) {
	t.rows, t.widths = nil, make([]int, len(names))
	t.Row(names...)
}

// Row adds a row of as many cells as the header has.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
	}
	t.rows = append(t.rows, cells)
}

// Print writes the table.
func (t *Table) Print(w io.Writer) {
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)))
			line.WriteString(c)
		}
		fmt.Fprintln(w, line.String())
	}
}
