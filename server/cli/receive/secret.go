package receive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// secretFlags are the flags for the signing secret of a subscription.
type secretFlags struct {
	text string
	file string
}

func (s *secretFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&s.text, "secret", "", "signing `secret`, whsec_… (or "+config.EnvWebhookSecret+", which is safer: ps shows flags)")
	flags.StringVar(&s.file, "secret-file", "", "`file` with the signing secret")
}

// read returns the secret of the flag, of the file, or of the environment. It returns none if all are empty.
func (s *secretFlags) read() (redact.Text, error) {
	switch {
	case s.text != "" && s.file != "":
		return redact.Text{}, errors.New("--secret and --secret-file exclude each other; give only one of them")
	case s.file != "":
		text, err := os.ReadFile(s.file)
		if err != nil {
			// Do not show the path, because people sometimes write the secret itself there.
			if path, ok := errors.AsType[*fs.PathError](err); ok {
				err = path.Err
			}
			return redact.Text{}, fault.Advise(fmt.Errorf("--secret-file: cannot read the file: %w", err), "check the path and its permissions")
		}
		if text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")); len(text) == 0 {
			return redact.Text{}, fault.Advise(fmt.Errorf("--secret-file: %s is empty", s.file), "write the signing secret into it")
		}
		return redact.New(string(text)), nil
	case s.text != "":
		return redact.New(s.text), nil
	default:
		return redact.New(os.Getenv(config.EnvWebhookSecret)), nil
	}
}
