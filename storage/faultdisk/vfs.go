package faultdisk

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// The driver's SQLite is C translated to Go. Its memory is outside Go's, and a function pointer is a number. Only at,
// toC and toGo know how.

type address = uintptr

// at returns a pointer to an address of SQLite's memory.
func at[T any](a address) *T { return *(**T)(unsafe.Pointer(&a)) }

// toC turns a function into a C pointer. The function must be a top-level one, which never moves.
func toC[F any](f F) address { return *(*address)(unsafe.Pointer(&struct{ f F }{f})) }

func toGo[F any](a address) F { return *(*F)(unsafe.Pointer(&struct{ a address }{a})) }

type (
	methods = sqlite3.Tsqlite3_io_methods
	vfs     = sqlite3.Tsqlite3_vfs

	transfer = func(*libc.TLS, address, address, int32, int64) int32
	flush    = func(*libc.TLS, address, int32) int32
	shorten  = func(*libc.TLS, address, int64) int32
	closing  = func(*libc.TLS, address) int32
	remove   = func(*libc.TLS, address, address, int32) int32
	opening  = func(*libc.TLS, address, address, address, int32, address) int32
)

var system address

// opened is an open file with the methods of the system.
type opened struct {
	*file
	*methods
}

// Install puts the disk below every database that is opened from now on. Call it in TestMain.
var Install = sync.OnceFunc(func() {
	disk.files, disk.open, disk.tables = map[string]*file{}, map[address]opened{}, map[address]address{}
	tls := libc.NewTLS()
	if code := sqlite3.Xsqlite3_initialize(tls); code != 0 {
		panic(fmt.Sprintf("faultdisk: initialize: %d", code))
	}
	system = sqlite3.Xsqlite3_vfs_find(tls, 0)
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(vfs{})))
	v := at[vfs](ours)
	*v = *at[vfs](system)
	name, err := libc.CString("faultdisk")
	if err != nil {
		panic(err)
	}
	v.FzName, v.FxOpen, v.FxDelete = name, toC(opening(open)), toC(remove(unlink))
	if code := sqlite3.Xsqlite3_vfs_register(tls, ours, 1); code != 0 {
		panic(fmt.Sprintf("faultdisk: register: %d", code))
	}
})

// replaceMethods returns our method table for a table of the system. It makes one for each kind of file. The caller holds the lock.
func replaceMethods(tls *libc.TLS, table address) address {
	if ours, known := disk.tables[table]; known {
		return ours
	}
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods{})))
	m := at[methods](ours)
	*m = *at[methods](table)
	m.FxRead, m.FxWrite = toC(transfer(read)), toC(transfer(write))
	m.FxSync, m.FxTruncate, m.FxClose = toC(flush(syncFile)), toC(shorten(truncate)), toC(closing(closeFile))
	disk.tables[table] = ours
	return ours
}

func open(tls *libc.TLS, _, name, handle address, flags int32, out address) int32 {
	disk.Lock()
	defer disk.Unlock()
	path := libc.GoString(name)
	table := at[address](handle)
	if code := faultFor(Open, path); code != 0 {
		*table = 0 // there is nothing to close
		return code
	}
	result := toGo[opening](at[vfs](system).FxOpen)(tls, system, name, handle, flags, out)
	if *table == 0 {
		return result
	}
	f := disk.files[path]
	if f == nil {
		f = &file{path: path}
		if disk.tracked && path != "" {
			f.durable, _ = os.ReadFile(path) // empty if the file is new
			disk.files[path] = f
		}
	}
	disk.open[handle] = opened{f, at[methods](*table)}
	*table = replaceMethods(tls, *table)
	return result
}

func unlink(tls *libc.TLS, _, name address, syncDir int32) int32 {
	result := toGo[remove](at[vfs](system).FxDelete)(tls, system, name, syncDir)
	disk.Lock()
	defer disk.Unlock()
	delete(disk.files, libc.GoString(name))
	return result
}

func closeFile(tls *libc.TLS, handle address) int32 {
	disk.Lock()
	f := disk.open[handle]
	delete(disk.open, handle)
	disk.Unlock()
	return toGo[closing](f.FxClose)(tls, handle)
}

func read(tls *libc.TLS, handle, buffer address, n int32, offset int64) int32 {
	f, code := begin(Read, handle)
	if code != 0 {
		return code
	}
	return toGo[transfer](f.FxRead)(tls, handle, buffer, n, offset)
}

func write(tls *libc.TLS, handle, buffer address, n int32, offset int64) int32 {
	f, code := begin(Write, handle)
	if code != 0 {
		return code
	}
	f.noteWrite(change{offset, bytes.Clone(unsafe.Slice(at[byte](buffer), n))})
	return toGo[transfer](f.FxWrite)(tls, handle, buffer, n, offset)
}

func truncate(tls *libc.TLS, handle address, size int64) int32 {
	f, code := begin(Truncate, handle)
	if code != 0 {
		return code
	}
	f.noteWrite(change{at: size})
	return toGo[shorten](f.FxTruncate)(tls, handle, size)
}

func syncFile(tls *libc.TLS, handle address, flags int32) int32 {
	f, code := begin(Sync, handle)
	if code != 0 {
		return code
	}
	if f.noteFlush() {
		return 0 // what Cut leaves needs no flush of the real disk, which takes most of the time of a simulation
	}
	return toGo[flush](f.FxSync)(tls, handle, flags)
}
