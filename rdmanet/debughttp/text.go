package debughttp

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeText writes a table with a line for each listener and connection, and one of lanes if there
// are any.
func writeText(w io.Writer, l listing) error {
	if err := writeTable(w, columns, l.rows()); err != nil || len(l.Lanes) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return writeTable(w, laneColumns, l.laneRows())
}

func writeTable(w io.Writer, columns []column, rows []row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		if i > 0 {
			fmt.Fprint(tw, "\t")
		}
		fmt.Fprint(tw, c.Name)
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}
