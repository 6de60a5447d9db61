package alert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"net/smtp"
	"net/url"
	"strings"
	"time"
)

// mailer sends mail through one server (RFC 5321).
type mailer struct {
	host, port     string
	user, password string // empty if the server needs none
	from           string
	to             []string
}

// tlsPort is the port at which TLS begins at once (RFC 8314). At any other, STARTTLS does, if the server offers it.
const tlsPort = "465"

// mail is the form smtp://USER:PASSWORD@HOST:587/?from=FROM&to=TO,TO.
func mail(u *url.URL, o url.Values) (sender, error) {
	m := mailer{host: u.Hostname(), port: cmp.Or(u.Port(), "587"), user: u.User.Username()}
	m.password, _ = u.User.Password()
	from, err := addresses(take(o, "from", ""))
	if err != nil || len(from) != 1 {
		return nil, errors.New("from must be one address")
	}
	if m.to, err = addresses(take(o, "to", "")); err != nil {
		return nil, errors.New("to must be one or more addresses, with commas")
	}
	m.from = from[0]
	return m.send, nil
}

func addresses(list string) (found []string, err error) {
	parsed, err := netmail.ParseAddressList(list)
	for _, a := range parsed {
		found = append(found, a.Address)
	}
	return found, err
}

func (m mailer) send(ctx context.Context, what message) error {
	conn, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(m.host, m.port))
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })() // net/smtp takes no context
	if err := m.talk(limitedConn{conn, io.LimitReader(conn, maxAnswers)}, mailText(m.from, m.to, what.title, what.body, time.Now())); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// maxAnswers limits what a mail server may send for one mail, in bytes, with the certificates of TLS. net/smtp keeps a line of any length
// in memory. Before STARTTLS, anybody on the way to the server could send such a line.
const maxAnswers = 512 << 10

type limitedConn struct {
	net.Conn
	in io.Reader
}

func (c limitedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (m mailer) talk(conn net.Conn, text []byte) error {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: m.host}
	if m.port == tlsPort {
		conn = tls.Client(conn, secure)
	}
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer func() { _ = c.Close() }() // after Quit it is closed already
	if offered, _ := c.Extension("STARTTLS"); offered {
		if err := c.StartTLS(secure); err != nil {
			return err
		}
	}
	if m.user != "" {
		auth := smtp.PlainAuth("", m.user, m.password, m.host)
		_, encrypted := c.TLSConnectionState()
		if _, _, err := auth.Start(&smtp.ServerInfo{Name: m.host, TLS: encrypted}); err != nil { // only this machine needs no TLS
			return errNoTLS
		}
		if offered, _ := c.Extension("AUTH"); !offered {
			return errNoAuth
		}
		if err := c.Auth(auth); err != nil {
			return err
		}
	}
	if err := c.Mail(m.from); err != nil {
		return err
	}
	for _, to := range m.to {
		if err := c.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the server has the mail
	return nil
}

// mailText returns the text of a mail (RFC 5322).
func mailText(from string, to []string, title, body string, at time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "From: <%s>\r\nTo: <%s>\r\nSubject: %s\r\nDate: %s\r\n", from, strings.Join(to, ">, <"),
		mime.QEncoding.Encode("utf-8", title), at.Format(time.RFC1123Z))
	b.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(body)) // a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}
