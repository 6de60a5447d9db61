package webhook

// FailureClass groups failed attempts by their cause. Its text begins the stored error, and labels metrics.
type FailureClass string

// The classes of failure.
const (
	DNSError       FailureClass = "dns_error"
	ConnectError   FailureClass = "connect_error"
	TLSError       FailureClass = "tls_error"
	TimeoutError   FailureClass = "timeout"
	BlockedAddress FailureClass = "blocked_address"
	HTTPStatus     FailureClass = "http_status"    // the receiver responded, but not with 2xx
	ProtocolError  FailureClass = "protocol_error" // the request could not be made, or the response could not be read
)

// FailureClasses lists all classes.
func FailureClasses() []FailureClass {
	return []FailureClass{DNSError, ConnectError, TLSError, TimeoutError, BlockedAddress, HTTPStatus, ProtocolError}
}

// Failure says why an attempt failed. The zero value is no failure.
type Failure struct {
	Class FailureClass
	Text  string // a fixed phrase: an error's own text may contain a resolved address, or the path and query of a URL
}

// IsZero reports whether there is no failure.
func (f Failure) IsZero() bool { return f == Failure{} }

// String returns the class and the text, as they are stored and shown; empty for no failure.
func (f Failure) String() string {
	if f.IsZero() {
		return ""
	}
	return string(f.Class) + ": " + f.Text
}
