package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// signingSecret is how a command is given the signing secret of a subscription.
type signingSecret struct {
	text string
	file string
}

func (s *signingSecret) flags(flags *pflag.FlagSet) {
	flags.StringVar(&s.text, "secret", "", "signing secret of the subscription, whsec_…; better "+config.EnvWebhookSecret+", which ps does not show")
	flags.StringVar(&s.file, "secret-file", "", "file with the signing secret")
}

// read returns the secret: that of the flag, of the file, or of the environment; none where all are empty.
func (s *signingSecret) read() (redact.Text, error) {
	switch {
	case s.text != "" && s.file != "":
		return redact.Text{}, errors.New("there are two secrets: give --secret or --secret-file")
	case s.file != "":
		text, err := os.ReadFile(s.file)
		if err != nil {
			return redact.Text{}, fmt.Errorf("--secret-file: %w", err)
		}
		if text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")); len(text) == 0 {
			return redact.Text{}, fmt.Errorf("--secret-file: %s is empty", s.file)
		}
		return redact.New(string(text)), nil
	case s.text != "":
		return redact.New(s.text), nil
	default:
		return redact.New(os.Getenv(config.EnvWebhookSecret)), nil
	}
}
