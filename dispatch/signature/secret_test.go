package signature_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// Two texts of one key would be two secrets that sign alike, and other libraries refuse such a text.
func TestASecretHasOneText(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"bits that no byte takes": strings.Replace(newSecret, "g=", "h=", 1),
		"no padding":              strings.TrimSuffix(newSecret, "="),
		"the other alphabet":      strings.Replace(newSecret, "+", "-", 1),
	} {
		t.Run("so a secret with "+name+" is refused", func(t *testing.T) {
			t.Parallel()
			if secret == newSecret {
				t.Fatal("the secret was not changed")
			}
			if _, err := signature.NewSigner(secret); !errors.Is(err, signature.ErrSecret) {
				t.Errorf("the signer: %v", err)
			}
			v := signature.Verifier{Secrets: []string{secret}}
			if err := v.VerifyStandard(signedHeaders(t, "X-Service", newSecret), []byte(testBody), sent); !errors.Is(err, signature.ErrSecret) {
				t.Errorf("the verifier: %v", err)
			}
		})
	}
}
