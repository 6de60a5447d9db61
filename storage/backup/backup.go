// Package backup owns what is said of copies of the database: what they are called, and what is told of one. It knows
// neither SQL nor how a copy is made.
package backup

import (
	"regexp"
	"strings"
	"time"
)

// Contents is what a database holds.
type Contents struct {
	Events     int64 `db:"events"`
	Deliveries int64 `db:"deliveries"`
	Pending    int64 `db:"pending"` // of the deliveries
	// KeyID names the encryption key that its signing secrets are sealed with. The key itself is in no copy.
	KeyID string `db:"-"`
}

// Report tells of a copy that was made and checked.
type Report struct {
	File      string // absolute
	Bytes     int64
	SHA256    string // in hexadecimal
	CreatedAt int64  // in milliseconds: what was acknowledged before is in it
	Took      time.Duration
	Removed   []string // older copies that made room for it
	Warning   string   // what failed once the copy was made; empty where nothing did
	Contents
}

// Restored tells of a copy that was put in the place of a database.
type Restored struct {
	Database string
	Aside    string // where what was there before is now; empty where nothing was
	Contents
	Waiting []Waiting // the subscriptions for which most is pending
}

// Waiting is what is pending for one subscription.
type Waiting struct {
	SubscriptionID string
	URL            string
	Pending        int64
}

const dated = "20060102-150405.000"

// Name returns what a copy of a database is called that nobody named: sorted by name, copies are sorted by time.
func Name(database string, at time.Time) string {
	return stem(database) + "-" + at.UTC().Format(dated) + ".db"
}

// IsDated reports whether Name has made the name, for a database of that name.
func IsDated(name, database string) bool {
	rest, ours := strings.CutPrefix(name, stem(database)+"-")
	at, isDB := strings.CutSuffix(rest, ".db")
	_, err := time.Parse(dated, at)
	return ours && isDB && err == nil
}

func stem(database string) string { return strings.TrimSuffix(database, ".db") }

var bare = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.db$`)

// ValidName reports whether a caller from elsewhere may give a copy that name: a bare one, that leads to no other
// directory and is no file beside a database.
func ValidName(name string) bool { return bare.MatchString(name) }
