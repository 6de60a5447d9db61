package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/config"
)

// verifyOptions are what verify is given.
type verifyOptions struct {
	secret      signingSecret
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

func newVerify() *cobra.Command {
	var o verifyOptions
	var d diagnosis.Delivery
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Say whether the signature of a delivery is right, and if not, why",
		Long: `Say whether the signatures of a delivery are right, and if not, which mistake was made: a body that was parsed and
written again, a line break added, another secret, a secret decoded or not, a timestamp missing or in milliseconds, a clock
that is off, and so on. The mistake is found by undoing it, alone or together with others, until the signature comes out
right, so that what is named as proved is certain.

The delivery is a saved request, or headers and a body:

  keyhook verify --request saved.http --at sent
  keyhook verify --headers-file headers.txt --body body.json

With --computed, it says by which mistake the code of a receiver came to another signature than the one in the header.
The exit code is 0 where every signature that is there is right, 1 where one is not, and 2 where the command is used
wrongly.`,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			d, err = o.delivery(cmd.InOrStdin(), time.Now())
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.OutOrStdout(), d) },
	}
	flags := cmd.Flags()
	o.secret.flags(flags)
	flags.StringVar(&o.previous, "previous-secret", "", "the secret before a rotation, or any other that it may have been signed with")
	flags.StringVar(&o.request, "request", "", "file with the whole request as it came, or -")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, "a header, as 'Name: value'; may be repeated")
	flags.StringVar(&o.headersFile, "headers-file", "", "file with the headers, a line each or as a JSON object")
	flags.StringVar(&o.body, "body", "", "file with the body, or -")
	flags.StringVar(&o.computed, "computed", "", "the signature that your code computed: says how it came to that")
	flags.StringVar(&o.at, "at", "now", "the receiver's clock: now, sent (the delivery's own time), a time as in RFC 3339, or Unix seconds")
	flags.DurationVar(&o.tolerance, "tolerance", signature.DefaultTolerance, "how far the timestamp may be from that clock")
	flags.StringVar(&o.prefix, "header-prefix", signature.DefaultHeaderPrefix, "what webhooks.header_prefix is set to")
	flags.BoolVar(&o.asJSON, "json", false, "as a JSON object")
	return cmd
}

// delivery reads what is to be judged.
func (o *verifyOptions) delivery(in io.Reader, now time.Time) (diagnosis.Delivery, error) {
	none := diagnosis.Delivery{}
	secret, err := o.secret.read()
	if err != nil {
		return none, err
	}
	if secret.IsZero() {
		return none, errors.New("no secret is given: use --secret-file, or set " + config.EnvWebhookSecret)
	}
	if o.tolerance <= 0 {
		return none, errors.New("--tolerance must be more than 0")
	}
	header, body, err := o.read(in)
	if err != nil {
		return none, err
	}
	d := diagnosis.Delivery{
		Header: header, Body: body, Secret: secret.Reveal(), Previous: o.previous, HeaderPrefix: o.prefix, Tolerance: o.tolerance,
	}
	d.Now, err = o.clock(d, now)
	return d, err
}

// clock reads --at.
func (o *verifyOptions) clock(d diagnosis.Delivery, now time.Time) (time.Time, error) {
	if o.at == "now" {
		return now, nil
	}
	text := o.at
	if text == "sent" {
		if text = d.Header.Get(o.prefix + "-Timestamp"); text == "" {
			text = d.Header.Get("webhook-timestamp")
		}
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return now, nil // what is wrong with it, the verdict says
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("--at %q is none of: now, sent, a time as 2027-01-15T08:00:00Z, Unix seconds", o.at)
	}
	return t, nil
}

// verify judges, prints, and returns an error where something is wrong.
func (o *verifyOptions) verify(out io.Writer, d diagnosis.Delivery) error {
	verdicts := judge(d)
	report := verification{Valid: isRight(verdicts), At: d.Now.UTC(), BodyBytes: len(d.Body), Schemes: verdicts}
	if o.computed != "" {
		report.Computed = explain(d, o.computed)
	}
	if o.asJSON {
		if err := report.writeJSON(out); err != nil {
			return err
		}
	} else {
		report.write(out)
	}
	switch {
	case !report.Valid:
		return errors.New("the delivery does not verify")
	case report.Computed != nil && !report.Computed.right():
		return errors.New("the delivery verifies, and the computed signature is not the right one")
	}
	return nil
}

// explain says what a computed signature is.
func explain(d diagnosis.Delivery, text string) *computed {
	scheme, found, ok := d.Explain(text)
	if found == nil {
		found = []diagnosis.Mistake{} // an array in JSON
	}
	return &computed{Explained: ok, Scheme: string(scheme), Mistakes: found}
}
