package cli

import (
	"fmt"
	"io"
)

// progress says on a terminal, in one line that it writes over, what is being measured, and elsewhere in a line each.
type progress struct {
	out      io.Writer
	terminal bool
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out)}
}

// eraseLine goes to the begin of the line and erases it.
const eraseLine = "\r\x1b[K"

func (p *progress) begin(number, of int, title string) {
	if p.terminal {
		fmt.Fprintf(p.out, eraseLine+"[%d/%d] %s …", number, of, title)
		return
	}
	fmt.Fprintf(p.out, "[%d/%d] %s\n", number, of, title)
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, eraseLine)
	}
}
