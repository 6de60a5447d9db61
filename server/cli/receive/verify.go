package receive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
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
	headers     []string
	headersFile string
	request     string
	body        string
	computed    string
	at          string
	asJSON      bool
}

// NewVerify returns the command verify.
func NewVerify() *cobra.Command {
	var o verifyOptions
	var secret secretFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the signatures of a delivery, and explain a wrong signature",
		Long: `Check the signatures of a delivery, and explain a wrong signature. The command knows the common mistakes: wrong secret,
missing header, old timestamp, added line break, JSON that was parsed and written again, hex instead of base64.

"Proved" means that undoing this one mistake makes the signature right. "Probably" means that the command guesses.

Give the delivery as a saved request, or as headers and a body. To save requests, use "keyhook listen --save". With
--computed, the command explains a signature that your program computed for this delivery.

The exit code is 1 if a signature is wrong, and 2 if the command line is wrong.`,
		Example: `  keyhook verify --secret-file secret.txt --request deliveries/1.http --at sent
  keyhook verify --secret-file secret.txt --headers-file headers.txt --body body.json`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			text, err := secret.read(cmd.InOrStdin())
			if err != nil {
				return err
			}
			o.Secret = text.Reveal()
			return o.read(cmd.InOrStdin())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	secret.define(cmd)
	flags.StringVar(&o.Previous, "previous-secret", "", "second `secret` to try, such as the old secret after a rotation")
	flags.StringVar(&o.request, "request", "", "`file` with the complete request; - means the standard input")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, "one `header`, as 'Name: value'; repeat the flag for more")
	flags.StringVar(&o.headersFile, "headers-file", "", "`file` with headers, one on each line or as a JSON object")
	flags.StringVar(&o.body, "body", "", "`file` with the body; - means the standard input")
	flags.StringVar(&o.computed, "computed", "", "`signature` that your program computed")
	flags.StringVar(&o.at, "at", "now", "`time` of the check: now, sent (when the delivery was sent), RFC 3339, or Unix seconds")
	flags.DurationVar(&o.Tolerance, "tolerance", signature.DefaultTolerance, "maximum difference between the timestamp and --at")
	flags.StringVar(&o.HeaderPrefix, "header-prefix", signature.DefaultHeaderPrefix, "`text` of the server's setting webhooks.header_prefix")
	flags.BoolVar(&o.asJSON, "json", false, "print a JSON object")
	return cmd
}

// readClock reads --at.
func (o *verifyOptions) readClock() error {
	text := o.at
	if text == "sent" { // the result says what is wrong with a timestamp
		text = cmp.Or(o.Header.Get(o.HeaderPrefix+"-Timestamp"), o.Header.Get("webhook-timestamp"))
	}
	o.Now = time.Now()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		o.Now = time.Unix(n, 0)
	} else if at, err := time.Parse(time.RFC3339, text); err == nil {
		o.Now = at
	} else if o.at != "now" && o.at != "sent" {
		return fmt.Errorf("--at is %q, but must be now, sent, a time such as 2027-01-15T08:00:00Z, or Unix seconds", o.at)
	}
	return nil
}

// verify checks the delivery, prints the report, and returns an error if something is wrong.
func (o *verifyOptions) verify(out io.Writer) error {
	results := checkSignatures(o.Delivery)
	r := report{Valid: isRight(results), At: o.Now.UTC(), BodyBytes: len(o.Body), Schemes: results}
	lines := explain(output.NewPalette(out), results)
	var err error
	if !r.Valid {
		err = errors.New("a signature of the delivery is wrong")
	}
	if o.computed != "" {
		scheme, mistakes, isExplained := o.Mistakes(o.computed)
		r.Computed = &computed{isExplained, scheme, append([]diagnosis.Mistake{}, mistakes...)} // an array in JSON
		lines = append(lines, r.Computed.explain()...)
		if err == nil && (!isExplained || len(mistakes) > 0) {
			err = errors.New("the delivery is right, but the computed signature is wrong")
		}
	}
	if o.asJSON {
		return cmp.Or(output.WriteJSON(out, r), err)
	}
	fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// report is what verify prints.
type report struct {
	Valid     bool               `json:"valid"`
	At        time.Time          `json:"at"` // the receiver's clock
	BodyBytes int                `json:"body_bytes"`
	Schemes   []diagnosis.Result `json:"schemes"`
	Computed  *computed          `json:"computed,omitempty"`
}

// computed is the result for a signature that a program computed.
type computed struct {
	Explained bool                `json:"explained"`
	Scheme    diagnosis.Scheme    `json:"scheme,omitempty"`
	Mistakes  []diagnosis.Mistake `json:"mistakes"`
}

func (c *computed) explain() []string {
	switch {
	case !c.Explained:
		return []string{
			"No known mistake explains the computed signature. Compare the secret, the raw bytes of the body and the signed message:",
			`  X-Service-Signature is the hex HMAC-SHA256 over "<X-Service-Timestamp>.<body>"; the key is the whole secret.`,
			`  webhook-signature is "v1," and the base64 HMAC-SHA256 over "<webhook-id>.<webhook-timestamp>.<body>"; the key is decoded.`,
		}
	case len(c.Mistakes) == 0:
		return []string{fmt.Sprintf("The computed signature is right, in the scheme %s.", c.Scheme)}
	}
	return append([]string{fmt.Sprintf("The computed signature is WRONG, in the scheme %s.", c.Scheme)}, explainMistakes(c.Mistakes)...)
}

// secretFlags are the flags for the signing secret of a subscription.
type secretFlags struct{ text, file string }

func (s *secretFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.text, "secret", "", "signing `secret`, whsec_… (or "+config.EnvWebhookSecret+", which is safer: ps shows flags)")
	flags.StringVar(&s.file, "secret-file", "", "`file` with the signing secret")
	cmd.MarkFlagsMutuallyExclusive("secret", "secret-file")
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

// checkSignatures checks a delivery in both schemes.
func checkSignatures(d diagnosis.Delivery) []diagnosis.Result {
	results := diagnosis.Check(d)
	hasNone := func(v diagnosis.Result) bool { return d.Header.Get(v.Header) == "" }
	for i, v := range results {
		if errors.Is(v.Err, signature.ErrMissing) && hasNone(v) && !hasNone(results[1-i]) {
			results[i] = diagnosis.Result{Scheme: v.Scheme, Header: v.Header, Verdict: absent}
		}
	}
	return results
}

// isRight reports whether no signature is wrong. At least one is right then.
func isRight(results []diagnosis.Result) bool {
	return !slices.ContainsFunc(results, func(v diagnosis.Result) bool { return v.Verdict == diagnosis.Wrong })
}

// sameMistakes reports whether two signatures are wrong for the same reason.
func sameMistakes(a, b diagnosis.Result) bool {
	sameName := func(a, b diagnosis.Mistake) bool { return a.Name == b.Name }
	return len(a.Mistakes) > 0 && slices.EqualFunc(a.Mistakes, b.Mistakes, sameName)
}
