package receive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// secretFlags are the flags for the signing secret of a subscription.
type secretFlags struct{ text, file string }

func (s *secretFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&s.text, "secret", "", "signing `secret`, whsec_… (or "+config.EnvWebhookSecret+", which is safer: ps shows flags)")
	flags.StringVar(&s.file, "secret-file", "", "`file` with the signing secret")
}

// read returns the secret of the flag, of the file, or of the environment. It returns none if all are empty.
func (s *secretFlags) read(in io.Reader) (redact.Text, error) {
	switch {
	case s.text != "" && s.file != "":
		return redact.Text{}, errors.New("--secret and --secret-file exclude each other; give only one of them")
	case s.text != "":
		return redact.New(s.text), nil
	case s.file == "":
		return redact.New(os.Getenv(config.EnvWebhookSecret)), nil
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
