package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/config"
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
func (s *signingSecret) read() (config.Secret, error) {
	switch {
	case s.text != "" && s.file != "":
		return config.Secret{}, errors.New("there are two secrets: give --secret or --secret-file")
	case s.file != "":
		text, err := os.ReadFile(s.file)
		if err != nil {
			return config.Secret{}, fmt.Errorf("--secret-file: %w", err)
		}
		if text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")); len(text) == 0 {
			return config.Secret{}, fmt.Errorf("--secret-file: %s is empty", s.file)
		}
		return config.NewSecret(string(text)), nil
	case s.text != "":
		return config.NewSecret(s.text), nil
	default:
		return config.NewSecret(os.Getenv(config.EnvWebhookSecret)), nil
	}
}
