//go:build !linux

package cli

import "syscall"

// dieWithParent asks for nothing here: the system has no such service, and a child outlives a parent that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
