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

type conditionText struct {
	begins, ends string // titles
	mend         string // what to do while it lasts; DOCTOR stands for the command that looks for faults
}

var conditionTexts = map[Kind]conditionText{
	DeliveriesLate: {
		"deliveries are late", "deliveries are no longer late",
		"Run `DOCTOR` on the machine of the server, and look at the log of the server for errors.",
	},
	DiskLow: {
		"the disk is nearly full", "the disk has enough free space again",
		"Free some space on the disk of storage.path, or shorten storage.retention_events. Writes fail when the disk is full.",
	},
	WritesRefused: {
		"the database refuses writes", "the database takes writes again",
		"Run `DOCTOR` on the machine of the server. Until then, Keyhook accepts no events and sends no deliveries.",
	},
	ResultsUnsaved: {
		"results of attempts cannot be saved", "all results of attempts are saved again",
		"Look at the log of the server for \"result of an attempt\", and run `DOCTOR`. Keyhook tries again. If the server stops first, it sends these deliveries again.",
	},
	CertificateExpires: {
		"the TLS certificate expires soon", "the TLS certificate was renewed",
		"Renew the certificate in server.tls_cert_file, and restart Keyhook. Keyhook reads the file only at the start.",
	},
}
