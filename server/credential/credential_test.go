package credential_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
	other := access.Mint("svc")
	wrongSum := key.Reveal()[:len(key.Reveal())-1] + "!"
	flipped := []byte(key.Reveal())
	flipped[10] ^= 1

	for name, tt := range map[string]struct {
		values []string
		status int
		code   string
	}{
		"a key":                             {[]string{servertest.APIKey(key)}, 200, ""},
		"a key, lower-case scheme":          {[]string{"apikey " + key.Reveal()}, 200, ""},
		"a key, upper-case scheme":          {[]string{"APIKEY " + key.Reveal()}, 200, ""},
		"a key after several spaces":        {[]string{"ApiKey    " + key.Reveal()}, 200, ""},
		"a key with trailing blanks":        {[]string{servertest.APIKey(key) + " \t "}, 200, ""},
		"a token":                           {[]string{servertest.Bearer(token)}, 200, ""},
		"a token, lower-case scheme":        {[]string{"bearer " + token.Reveal()}, 200, ""},
		"a token that an operator chose":    {[]string{servertest.Operator}, 200, ""},
		"no credential":                     {nil, 401, "missing_credential"},
		"an empty header":                   {[]string{""}, 401, "missing_credential"},
		"a scheme alone":                    {[]string{"ApiKey"}, 401, "invalid_key"},
		"the other scheme alone":            {[]string{"Bearer"}, 401, "invalid_key"},
		"a key without scheme":              {[]string{key.Reveal()}, 401, "wrong_scheme"},
		"an unknown scheme":                 {[]string{"Basic YWRtaW46YWRtaW4="}, 401, "wrong_scheme"},
		"a scheme with parameters":          {[]string{`Digest username="x", realm="y", uri="/"`}, 401, "wrong_scheme"},
		"a scheme with a comma at its end":  {[]string{"Negotiate abc,"}, 401, "wrong_scheme"},
		"a list of unknown schemes":         {[]string{`Basic YWRtaW46YWRtaW4=, Digest realm="y"`}, 401, "wrong_scheme"},
		"another scheme, then a key":        {[]string{"Basic YWRtaW46YWRtaW4=, " + servertest.APIKey(key)}, 400, "multiple_credentials"},
		"another scheme, then a token":      {[]string{`Digest realm="y",bearer some-token`}, 400, "multiple_credentials"},
		"another scheme, then a bare key":   {[]string{`Digest realm="y",` + key.Reveal()}, 400, "multiple_credentials"},
		"a token, then another scheme":      {[]string{servertest.Bearer(token) + ", Basic YWRtaW46YWRtaW4="}, 400, "multiple_credentials"},
		"a chosen token with commas":        {[]string{"Bearer chosen,by,ApiKey,an-operator"}, 401, "invalid_key"},
		"a tab between scheme and key":      {[]string{"ApiKey\t" + key.Reveal()}, 401, "wrong_scheme"},
		"a key as Bearer":                   {[]string{"Bearer " + key.Reveal()}, 401, "wrong_scheme"},
		"a key of another prefix as Bearer": {[]string{servertest.Bearer(access.Mint("old"))}, 401, "wrong_scheme"},
		"a malformed key as Bearer":         {[]string{"Bearer svc_short"}, 401, "wrong_scheme"},
		"a token as ApiKey":                 {[]string{"ApiKey " + token.Reveal()}, 401, "wrong_scheme"},
		"an unknown key":                    {[]string{servertest.APIKey(other)}, 401, "invalid_key"},
		"an unknown token":                  {[]string{servertest.Bearer(access.Mint(access.TokenPrefix))}, 401, "invalid_key"},
		"a wrong character in the checksum": {[]string{"ApiKey " + wrongSum}, 401, "invalid_key"},
		"another random part":               {[]string{"ApiKey " + string(flipped)}, 401, "invalid_key"},
		"a prefix in capitals":              {[]string{"ApiKey SVC" + key.Reveal()[3:]}, 401, "invalid_key"},
		"a prefix alone":                    {[]string{"ApiKey svc_"}, 401, "invalid_key"},
		"a key with trailing text":          {[]string{servertest.APIKey(key) + " x"}, 401, "invalid_key"},
		"a key followed by half of itself":  {[]string{servertest.APIKey(key) + key.Reveal()[:10]}, 401, "invalid_key"},
		"ten thousand characters":           {[]string{"ApiKey svc_" + strings.Repeat("a", 10_000)}, 401, "invalid_key"},
		"ten thousand characters as Bearer": {[]string{"Bearer " + strings.Repeat("a", 10_000)}, 401, "invalid_key"},
		"letters that are not ASCII":        {[]string{"ApiKey svc_ключключключключключключключключ"}, 401, "invalid_key"},
		"a token with a wrong checksum":     {[]string{"Bearer kat_" + strings.Repeat("a", 36)}, 401, "invalid_key"},
		"two headers":                       {[]string{servertest.APIKey(key), servertest.APIKey(key)}, 400, "multiple_credentials"},
		"two headers of two schemes":        {[]string{servertest.APIKey(key), servertest.Bearer(token)}, 400, "multiple_credentials"},
		"a list":                            {[]string{servertest.APIKey(key) + ", " + servertest.Bearer(token)}, 400, "multiple_credentials"},
		"a list of keys":                    {[]string{servertest.APIKey(key) + "," + other.Reveal()}, 400, "multiple_credentials"},
		"a list that begins with a token":   {[]string{servertest.Bearer(token) + "," + servertest.APIKey(key)}, 400, "multiple_credentials"},
		"a list of tokens without spaces":   {[]string{servertest.Bearer(token) + "," + token.Reveal()}, 400, "multiple_credentials"},
	} {
		at := map[string]struct {
			status int
			code   string
		}{"/api/v1/whoami/": {tt.status, tt.code}, "/api/v1/authz/forward/": {tt.status, tt.code}}
		if tt.status != 400 && len(tt.values) == 1 && strings.EqualFold(strings.Split(tt.values[0], " ")[0], "Bearer") {
			at["/api/v1/authz/forward/"] = struct {
				status int
				code   string
			}{401, "wrong_scheme"} // this path accepts API keys only
		}
		for path, want := range at {
			t.Run(name+", at "+path, func(t *testing.T) {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+path, nil)
				r.Header["Authorization"] = tt.values
				response, err := servertest.Client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got := servertest.Response{Response: response, Text: servertest.Read(t, response)}
				servertest.CheckResponse(t, name, got)
				got.Want(t, want.status, want.code)
				if want.code == "wrong_scheme" && !strings.Contains(got.Field("detail"), "Authorization: ") {
					t.Errorf("no hint: %s", got.Field("detail"))
				}
				if leaked := key.Reveal()[:10]; strings.Contains(got.Text, leaked) && want.status != 200 {
					t.Errorf("the response shows the credential: %s", got.Text)
				}
			})
		}
	}
	if text := f.Log.String(); strings.Contains(text, key.Reveal()) || strings.Contains(text, token.Reveal()) || strings.Contains(text, storagetest.OperatorToken) {
		t.Error("the log shows a credential")
	}
}

// TestOnlyATokenSignsIn sends texts of Keyhook that start no session.
func TestOnlyATokenSignsIn(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	_, key := storagetest.Key(t, f.Store, storagetest.Operator(t, f.Store), access.EventsRead)
	for name, raw := range map[string]string{
		"a key": key.Reveal(), "a link": access.Mint(access.LinkPrefix).Reveal(), "an unknown token": access.Mint(access.TokenPrefix).Reveal(), "an id": "tok_" + servertest.SomeID,
	} {
		if got := f.Do(t, "POST /api/v1/session/", "", `{"token":"`+raw+`"}`).Want(t, 401, "invalid_key"); !strings.Contains(got.Field("detail"), "malformed or unknown") {
			t.Errorf("%s: %s", name, got.Text)
		}
	}
}
