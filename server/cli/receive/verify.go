package receive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// verifyOptions are the flags of verify, and the delivery that they name.
type verifyOptions struct {
	diagnosis.Delivery
	secret      secretFlags
	headers     []string
	headersFile string
	request     string
	body        string
	at          string
	asJSON      bool
}

// NewVerify returns the command verify.
func NewVerify() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the signatures of a delivery, and explain a wrong signature",
		Long: `Check the signatures of a delivery, and explain a wrong signature. The command knows the common mistakes: wrong secret,
missing header, old timestamp, added line break, JSON that was parsed and written again, hex instead of base64.

"Proved" means that undoing this one mistake makes the signature right. "Probably" means that the command guesses.

Give the delivery as a saved request, or as headers and a body. To save requests, use "keyhook listen --save".

The exit code is 1 if a signature is wrong, and 2 if the command line is wrong.`,
		Example: `  keyhook verify --secret-file secret.txt --request deliveries/1.http --at sent
  keyhook verify --secret-file secret.txt --headers-file headers.txt --body body.json`,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return o.read(cmd.InOrStdin()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	o.secret.define(cmd, &o.HeaderPrefix)
	flags.StringVar(&o.request, "request", "", "`file` with the complete request; - means the standard input")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, "one `header`, as 'Name: value'; repeat the flag for more")
	flags.StringVar(&o.headersFile, "headers-file", "", "`file` with headers, one on each line")
	flags.StringVar(&o.body, "body", "", "`file` with the body; - means the standard input")
	flags.StringVar(&o.at, "at", "now", "`time` of the check: now, sent (when the delivery was sent), or RFC 3339")
	flags.DurationVar(&o.Tolerance, "tolerance", signature.DefaultTolerance, "maximum difference between the timestamp and --at")
	flags.BoolVar(&o.asJSON, "json", false, "print a JSON object")
	return cmd
}

// read reads the secret, the headers, the body and the time of the check. --header overrides --headers-file, and both override --request.
func (o *verifyOptions) read(in io.Reader) error {
	secret, err := o.secret.read(in)
	o.Secret = secret.Reveal()
	switch {
	case err != nil:
		return err
	case o.Secret == "":
		return errors.New("there is no secret; give --secret-file, or set " + config.EnvWebhookSecret)
	case o.Tolerance <= 0:
		return errors.New("--tolerance must be more than 0")
	case o.request == "" && o.body == "":
		return errors.New("there is no delivery; give --request, or --body with --header or --headers-file")
	case o.request == "" && o.headersFile == "" && len(o.headers) == 0:
		return errors.New("there are no headers; give --header or --headers-file")
	case o.request == "-" && o.body == "-":
		return errors.New("--request and --body cannot both read the standard input; give a file for one of them")
	}
	o.Header = http.Header{}
	for _, source := range []struct {
		flag, path string
		parse      func(text string) error
	}{
		{"request", o.request, o.parseRequest}, {"headers-file", o.headersFile, o.addHeaders},
		{"body", o.body, func(text string) error { o.Body = []byte(text); return nil }},
	} {
		if source.path == "" {
			continue
		}
		text, err := output.ReadFile(in, source.path, 16<<20) // the largest delivery is a fraction of it
		if err == nil {
			err = source.parse(text)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", source.flag, err)
		}
	}
	if err := o.addHeaders(strings.Join(o.headers, "\n")); err != nil {
		return fmt.Errorf("--header: %w", err)
	}
	return o.readClock()
}

// parseRequest parses a request as it was on the wire, with either line ending. Everything after the headers is the body, even if
// Content-Length says less: the bytes that were added may be the mistake.
func (o *verifyOptions) parseRequest(text string) error {
	end := regexp.MustCompile(`\n\r?\n`).FindStringIndex(text)
	if end == nil {
		return fault.Advise(errors.New("the request has no empty line between headers and body"), "save it again with \"keyhook listen --save\"")
	}
	o.Body = []byte(text[end[1]:])
	return o.addHeaders(text[:end[0]])
}

// addHeaders sets the headers of a text, one on each line. The first line may be the request line. A name that is present loses its values.
func (o *verifyOptions) addHeaders(text string) error {
	more := http.Header{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line = strings.TrimRight(line, "\r")
		name, value, found := strings.Cut(line, ":")
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, ":"), i == 0 && strings.Contains(line, " HTTP/"):
		case !found || name == "" || strings.ContainsAny(name, " \t"):
			return fmt.Errorf("line %d is not a header, such as \"Name: value\": %s", i+1, output.Quote(line))
		default:
			more.Add(name, strings.TrimSpace(value))
		}
	}
	maps.Copy(o.Header, more)
	return nil
}

func (o *verifyOptions) readClock() (err error) {
	switch o.at {
	case "now":
		o.Now = time.Now()
	case "sent": // the result says what is wrong with a timestamp
		seconds, _ := strconv.ParseInt(cmp.Or(o.Header.Get(o.HeaderPrefix+"-Timestamp"), o.Header.Get("webhook-timestamp")), 10, 64)
		o.Now = time.Unix(seconds, 0)
	default:
		if o.Now, err = time.Parse(time.RFC3339, o.at); err != nil {
			return fmt.Errorf("--at is %q, but must be now, sent, or a time such as 2027-01-15T08:00:00Z", o.at)
		}
	}
	return nil
}

// verify checks the delivery, prints the report, and returns an error if something is wrong.
func (o *verifyOptions) verify(out io.Writer) (err error) {
	results, isValid := checkSignatures(o.Delivery)
	if !isValid {
		err = errors.New("a signature of the delivery is wrong")
	}
	if o.asJSON {
		return cmp.Or(output.WriteJSON(out, struct {
			Valid     bool               `json:"valid"`
			At        time.Time          `json:"at"` // the receiver's clock
			BodyBytes int                `json:"body_bytes"`
			Schemes   []diagnosis.Result `json:"schemes"`
		}{isValid, o.Now.UTC(), len(o.Body), results}), err)
	}
	fmt.Fprintln(out, strings.Join(explain(results), "\n"))
	return err
}

// secretFlags are the flags for the signing secret of a subscription.
type secretFlags struct{ text, file string }

// define gives cmd the flags, and the flag for the prefix of the headers.
func (s *secretFlags) define(cmd *cobra.Command, prefix *string) {
	flags := cmd.Flags()
	flags.StringVar(prefix, "header-prefix", signature.DefaultHeaderPrefix, "`text` of the server's setting webhooks.header_prefix")
	flags.StringVar(&s.text, "secret", "", "signing `secret`, whsec_… (or "+config.EnvWebhookSecret+", which is safer: ps shows flags)")
	flags.StringVar(&s.file, "secret-file", "", "`file` with the signing secret")
	output.Exclusive(cmd, "secret", "secret-file")
}

// read returns the secret of the flag, of the file, or of the environment. It returns none if all are empty.
func (s *secretFlags) read(in io.Reader) (redact.Text, error) {
	if s.file == "" {
		return redact.New(cmp.Or(s.text, os.Getenv(config.EnvWebhookSecret))), nil
	}
	text, err := output.ReadFile(in, s.file, output.MaxFlagFile)
	if err != nil {
		return redact.Text{}, fmt.Errorf("--secret-file: %w", err)
	}
	if text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"); text == "" {
		return redact.Text{}, fault.Advise(errors.New("--secret-file: the file is empty"), "write the signing secret into it")
	}
	return redact.New(text), nil
}

// absent is the verdict on a scheme without a signature in a delivery that is signed in the other scheme.
const absent = "absent"

// checkSignatures checks a delivery in both schemes. areRight means that no signature is wrong. At least one is right then.
func checkSignatures(d diagnosis.Delivery) (results []diagnosis.Result, areRight bool) {
	results = diagnosis.Check(d)
	for i, v := range results {
		if errors.Is(v.Err, signature.ErrMissing) && d.Header.Get(v.Header) == "" && d.Header.Get(results[1-i].Header) != "" {
			results[i] = diagnosis.Result{Scheme: v.Scheme, Header: v.Header, Verdict: absent}
		}
	}
	return results, !slices.ContainsFunc(results, func(v diagnosis.Result) bool { return v.Verdict == diagnosis.Wrong })
}

// explain says in sentences what is right, and what is wrong and how to fix it.
func explain(results []diagnosis.Result) (lines []string) {
	for _, v := range results {
		text := " is right."
		switch {
		case v.Verdict == absent:
			text = " is not present."
		case v.Verdict == diagnosis.Wrong && strings.HasPrefix(v.Mistakes[0].Name, "clock_"):
			text = " is NOT ACCEPTED because of its timestamp."
		case v.Verdict == diagnosis.Wrong:
			text = " is WRONG: " + strings.TrimSuffix(output.Escape(v.Text), ".") + "."
		}
		lines = append(lines, v.Header+text)
		for _, m := range v.Mistakes {
			mark := map[bool]string{true: "proved", false: "probably"}[m.Proved]
			lines = append(lines, "  "+m.Name+" ("+mark+")", "    "+m.What, "    → "+m.Advice)
		}
	}
	return lines
}
