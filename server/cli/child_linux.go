package cli

import "syscall"

// dieWithParent has the system kill a child whose parent is killed before it can do so itself.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
