package receive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/server/config"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	secret      secretFlags
	previous    string
	headers     []string
	headersFile string
	request     string
	body        string
	computed    string
	at          string
	tolerance   time.Duration
	prefix      string
	asJSON      bool
}

// NewVerify returns the command verify.
func NewVerify() *cobra.Command {
	var o verifyOptions
	var d diagnosis.Delivery
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
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			d, err = o.delivery(cmd.InOrStdin(), time.Now())
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.OutOrStdout(), d) },
	}
	flags := cmd.Flags()
	o.secret.define(flags)
	flags.StringVar(&o.previous, "previous-secret", "", "second `secret` to try, such as the old secret after a rotation")
	flags.StringVar(&o.request, "request", "", "`file` with the complete request; - means the standard input")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, "one `header`, as 'Name: value'; repeat the flag for more")
	flags.StringVar(&o.headersFile, "headers-file", "", "`file` with headers, one on each line or as a JSON object")
	flags.StringVar(&o.body, "body", "", "`file` with the body; - means the standard input")
	flags.StringVar(&o.computed, "computed", "", "`signature` that your program computed")
	flags.StringVar(&o.at, "at", "now", "`time` of the check: now, sent (when the delivery was sent), RFC 3339, or Unix seconds")
	flags.DurationVar(&o.tolerance, "tolerance", signature.DefaultTolerance, "maximum difference between the timestamp and --at")
	flags.StringVar(&o.prefix, "header-prefix", signature.DefaultHeaderPrefix, "`text` of the server's setting webhooks.header_prefix")
	flags.BoolVar(&o.asJSON, "json", false, "print a JSON object")
	return cmd
}

// delivery reads the delivery and the settings.
func (o *verifyOptions) delivery(in io.Reader, now time.Time) (d diagnosis.Delivery, err error) {
	secret, err := o.secret.read(in)
	switch {
	case err != nil:
		return d, err
	case secret.IsZero():
		return d, errors.New("there is no secret; give --secret-file, or set " + config.EnvWebhookSecret)
	case o.tolerance <= 0:
		return d, errors.New("--tolerance must be more than 0")
	}
	if err := o.checkSources(); err != nil {
		return d, err
	}
	d = diagnosis.Delivery{Secret: secret.Reveal(), Previous: o.previous, HeaderPrefix: o.prefix, Tolerance: o.tolerance}
	if err := o.read(in, &d); err != nil {
		return d, err
	}
	d.Now, err = o.clock(d, now)
	return d, err
}

// clock reads --at.
func (o *verifyOptions) clock(d diagnosis.Delivery, now time.Time) (time.Time, error) {
	text := o.at
	switch text {
	case "now":
		return now, nil
	case "sent":
		text = cmp.Or(d.Header.Get(o.prefix+"-Timestamp"), d.Header.Get("webhook-timestamp"))
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0), nil
	}
	if o.at == "sent" {
		return now, nil // the result says what is wrong with the timestamp
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("--at is %q, but must be now, sent, a time such as 2027-01-15T08:00:00Z, or Unix seconds", o.at)
	}
	return t, nil
}

// verify checks the delivery, prints the report, and returns an error if something is wrong.
func (o *verifyOptions) verify(out io.Writer, d diagnosis.Delivery) error {
	results := checkSignatures(d)
	r := report{Valid: isRight(results), At: d.Now.UTC(), BodyBytes: len(d.Body), Schemes: results}
	if o.computed != "" {
		scheme, mistakes, isExplained := d.Explain(o.computed)
		r.Computed = &computed{isExplained, scheme, append([]diagnosis.Mistake{}, mistakes...)} // an array in JSON
	}
	if o.asJSON {
		if err := output.WriteJSON(out, r); err != nil {
			return err
		}
	} else {
		r.write(out)
	}
	switch {
	case !r.Valid:
		return errors.New("a signature of the delivery is wrong")
	case r.Computed != nil && !r.Computed.right():
		return errors.New("the delivery is right, but the computed signature is wrong")
	}
	return nil
}
