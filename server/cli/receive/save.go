package receive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// saveRequest writes a request as it came to the next free file N.http, for verify --request. It returns the file's path.
func (l *listener) saveRequest(r *http.Request, body []byte) (string, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.Host)
	_ = r.Header.Write(&text) // a buffer takes everything
	text.WriteString("\r\n")
	text.Write(body)
	for {
		path := filepath.Join(l.save, strconv.FormatInt(l.saved.Add(1), 10)+".http")
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // of an earlier run
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(text.Bytes())
		return path, errors.Join(err, file.Close())
	}
}
