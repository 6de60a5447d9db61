package alert

// Kind is what an alert is about. Each kind has its own message and its own interval.
type Kind string

// The kinds of alerts. All but the first five are conditions, which begin and end.
const (
	SubscriptionFailing   Kind = "subscription_failing"
	SubscriptionDisabled  Kind = "subscription_disabled"
	SubscriptionRecovered Kind = "subscription_recovered"
	CredentialsExpire     Kind = "credentials_expire"
	CredentialsLeaked     Kind = "credentials_leaked"
	DeliveriesLate        Kind = "deliveries_late"
	DiskLow               Kind = "disk_low"
	WritesRefused         Kind = "writes_refused"
	ResultsUnsaved        Kind = "results_unsaved"
	CertificateExpires    Kind = "certificate_expires"

	kindTest Kind = "test"
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{SubscriptionFailing, SubscriptionDisabled, SubscriptionRecovered, CredentialsExpire, CredentialsLeaked, DeliveriesLate, DiskLow,
		WritesRefused, ResultsUnsaved, CertificateExpires}
}
