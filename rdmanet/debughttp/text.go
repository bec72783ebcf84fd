package debughttp

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeText writes a table with a line for each listener and connection.
func writeText(w io.Writer, l listing) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		if i > 0 {
			fmt.Fprint(tw, "\t")
		}
		fmt.Fprint(tw, c.Name)
	}
	fmt.Fprintln(tw)
	for _, r := range l.rows() {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}
