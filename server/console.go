package server

import (
	"net/http"
	"strings"

	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
)

// isConsole reports whether the files of the console have this path. The API serves the paths of sign-in with an identity
// provider.
func isConsole(path string) bool {
	return path+"/" == console.Path || strings.HasPrefix(path, console.Path) && !strings.HasPrefix(path, console.Path+"oidc/")
}

func isRoot(path string) bool { return path == "/" }

func (h *handlers) redirectToConsole(x *exchange.Exchange) error {
	x.Redirect(x.Base + console.Path)
	return nil
}

func (h *handlers) consoleFile(x *exchange.Exchange) error {
	path := x.Request.URL.Path
	file, found := h.console.File(strings.TrimPrefix(path, console.Path))
	if !found {
		return exchange.Refuse(http.StatusNotFound, "not_found", "The console has no file "+form.Printable(path, form.MaxName)+". Reload the page.")
	}
	sendFile(x, file)
	return nil
}
