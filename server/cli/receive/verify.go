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

// verifyOptions are the flags of verify, and the delivery that they name.
type verifyOptions struct {
	diagnosis.Delivery
	secret      secretFlags
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
		PreRunE: func(cmd *cobra.Command, _ []string) error { return o.read(cmd.InOrStdin(), time.Now()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	o.secret.define(flags)
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

// read reads the secret, the delivery and the time of the check.
func (o *verifyOptions) read(in io.Reader, now time.Time) error {
	secret, err := o.secret.read(in)
	switch {
	case err != nil:
		return err
	case secret.IsZero():
		return errors.New("there is no secret; give --secret-file, or set " + config.EnvWebhookSecret)
	case o.Tolerance <= 0:
		return errors.New("--tolerance must be more than 0")
	}
	o.Secret = secret.Reveal()
	if err := o.readDelivery(in); err != nil {
		return err
	}
	return o.readClock(now)
}

// readClock reads --at.
func (o *verifyOptions) readClock(now time.Time) (err error) {
	o.Now = now
	text := o.at
	switch text {
	case "now":
		return nil
	case "sent":
		text = cmp.Or(o.Header.Get(o.HeaderPrefix+"-Timestamp"), o.Header.Get("webhook-timestamp"))
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		o.Now = time.Unix(n, 0)
		return nil
	}
	if o.at == "sent" {
		return nil // the result says what is wrong with the timestamp
	}
	if o.Now, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("--at is %q, but must be now, sent, a time such as 2027-01-15T08:00:00Z, or Unix seconds", o.at)
	}
	return nil
}

// verify checks the delivery, prints the report, and returns an error if something is wrong.
func (o *verifyOptions) verify(out io.Writer) error {
	results := checkSignatures(o.Delivery)
	r := report{Valid: isRight(results), At: o.Now.UTC(), BodyBytes: len(o.Body), Schemes: results}
	if o.computed != "" {
		scheme, mistakes, isExplained := o.Mistakes(o.computed)
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
