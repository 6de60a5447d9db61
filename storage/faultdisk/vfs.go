package faultdisk

import (
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

// originals maps our method tables to the system's tables, and back. Databases and logs have different tables.
var originals struct {
	sync.Mutex
	of      map[address]address
	standIn map[address]address
}

// Install puts the disk below every database that is opened from now on. Call it in TestMain.
var Install = sync.OnceFunc(func() {
	disk.files, disk.open = map[string]*file{}, map[uintptr]*file{}
	originals.of, originals.standIn = map[address]address{}, map[address]address{}
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

func original(handle address) *methods {
	originals.Lock()
	defer originals.Unlock()
	return at[methods](originals.of[*at[address](handle)])
}

// replaceMethods returns our method table for a table of the system. It makes one for each kind of file.
func replaceMethods(tls *libc.TLS, table address) address {
	originals.Lock()
	defer originals.Unlock()
	if ours, known := originals.standIn[table]; known {
		return ours
	}
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods{})))
	m := at[methods](ours)
	*m = *at[methods](table)
	m.FxRead, m.FxWrite = toC(transfer(read)), toC(transfer(write))
	m.FxSync, m.FxTruncate, m.FxClose = toC(flush(syncFile)), toC(shorten(truncate)), toC(closing(closeFile))
	originals.standIn[table], originals.of[ours] = ours, table
	return ours
}

func open(tls *libc.TLS, _, name, handle address, flags int32, out address) int32 {
	path := ""
	if name != 0 {
		path = libc.GoString(name)
	}
	disk.Lock()
	code := faultFor(Open, path)
	disk.Unlock()
	if code != 0 {
		*at[address](handle) = 0 // there is nothing to close
		return code
	}
	result := toGo[opening](at[vfs](system).FxOpen)(tls, system, name, handle, flags, out)
	table := *at[address](handle)
	if table == 0 {
		return result
	}
	*at[address](handle) = replaceMethods(tls, table)
	if path == "" {
		return result
	}
	disk.Lock()
	defer disk.Unlock()
	f := disk.files[path]
	if f == nil {
		f = &file{path: path}
		if disk.tracked {
			f.durable, _ = os.ReadFile(path) // empty if the file is new
			disk.files[path] = f
		}
	}
	disk.open[handle] = f
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
	m := original(handle)
	disk.Lock()
	delete(disk.open, handle)
	disk.Unlock()
	return toGo[closing](m.FxClose)(tls, handle)
}

func read(tls *libc.TLS, handle, buffer address, n int32, offset int64) int32 {
	if code := faultForHandle(Read, handle); code != 0 {
		return code
	}
	return toGo[transfer](original(handle).FxRead)(tls, handle, buffer, n, offset)
}

func write(tls *libc.TLS, handle, buffer address, n int32, offset int64) int32 {
	if code := faultForHandle(Write, handle); code != 0 {
		return code
	}
	content := append([]byte{}, unsafe.Slice(at[byte](buffer), n)...)
	noteWrite(handle, change{offset, content})
	return toGo[transfer](original(handle).FxWrite)(tls, handle, buffer, n, offset)
}

func truncate(tls *libc.TLS, handle address, size int64) int32 {
	if code := faultForHandle(Truncate, handle); code != 0 {
		return code
	}
	noteWrite(handle, change{at: size})
	return toGo[shorten](original(handle).FxTruncate)(tls, handle, size)
}

func syncFile(tls *libc.TLS, handle address, flags int32) int32 {
	if code := faultForHandle(Sync, handle); code != 0 {
		return code
	}
	if noteFlush(handle) {
		return 0 // what Cut leaves needs no flush of the real disk, which takes most of the time of a simulation
	}
	return toGo[flush](original(handle).FxSync)(tls, handle, flags)
}
