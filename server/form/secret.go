package form

import "github.com/keyhook/keyhook/storage/webhook"

// Secret returns an imported signing secret, or none if the field is missing. No problem shows it.
func (f *Form) Secret(name string) webhook.Secret {
	text := f.Text(name, webhook.MaxSecret)
	switch {
	case text == nil:
		return webhook.Secret{}
	case len(*text) < webhook.MinSecret:
		f.Refuse(name, "too_short", "A secret has at least %d characters.", webhook.MinSecret)
	case !webhook.ValidSecret(*text):
		f.Refuse(name, "invalid", "A secret has visible ASCII characters. If it begins with %s, the rest is padded standard base64, "+
			"because the libraries of Standard Webhooks decode it.", webhook.SecretPrefix)
	}
	return webhook.KnownSecret(*text)
}
