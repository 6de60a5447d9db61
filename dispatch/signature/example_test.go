package signature_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// A receiver reads the raw body with a limit, checks the signature, and only then decodes the body.
func ExampleVerifier_Verify() {
	verifier := signature.Verifier{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}

	receiver := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 512<<10))
		if err != nil {
			http.Error(w, "cannot read the body", http.StatusBadRequest)
			return
		}
		if err := verifier.Verify(r.Header, body, time.Now()); err != nil {
			fmt.Println("refused:", errors.Is(err, signature.ErrMismatch))
			http.Error(w, "wrong signature", http.StatusUnauthorized)
			return
		}
		fmt.Printf("genuine: %s\n", body)
		w.WriteHeader(http.StatusNoContent)
	}

	// What Keyhook sends.
	body, now := `{"type":"order.paid"}`, time.Now().Unix()
	signer, _ := signature.NewSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	send := func(body, signature string) {
		r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
		r.Header.Set("X-Service-Timestamp", strconv.FormatInt(now, 10))
		r.Header.Set("X-Service-Signature", signature)
		receiver(httptest.NewRecorder(), r)
	}
	genuine := string(signer.AppendHex(nil, now, []byte(body)))
	send(body, genuine)
	send(`{"type":"order.refunded"}`, genuine)

	// Output:
	// genuine: {"type":"order.paid"}
	// refused: true
}
