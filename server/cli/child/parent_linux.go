package child

import "syscall"

// dieWithParent makes the kernel kill the child when its parent dies, even by SIGKILL. Ctrl C in a terminal reaches the parent only, which
// then stops the child: a second signal would end it at once.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
