//go:build !linux

package child

import "syscall"

// dieWithParent does nothing: this system cannot kill a child with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
