package child

import "syscall"

// dieWithParent makes the kernel kill the child when its parent dies, even by SIGKILL.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
