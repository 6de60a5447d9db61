package cli

var auditNoun = noun{name: "audit", path: "/api/v1/audit-events/", short: "Audit log: who changed what", verbs: []action{{
	verb: "list", short: "List the audit log of an organization, newest first",
	example: "--type api_key_created --since 24h\n--organization all --target customer-42",
	method:  "GET", fields: append([]field{
		{member: "type", usage: "only events of this type, such as api_key_revoked", value: auditType},
		{member: "actor", usage: "only changes by this actor: the id or the external id of a user or an API key, the id of a portal session, or system", value: someText},
		{member: "target", usage: "only changes to this: an id such as key_01h455vb4pex5vsknk084sn02q, the name of a plan, a role or a permission, or an external id", value: someText},
	}, periodFields...),
	show: list{columns: []string{"at", "type", "actor.type", "actor.name", "target.type", "target.id", "details"}, ofAll: true},
}}}

// usageFields select periods of usage.
var usageFields = append([]field{
	{member: "step", usage: "the length of a period, in UTC (default day)", value: oneOf("day", "month")},
}, periodFields...)

var usageNoun = noun{name: "usage",
	short: "Usage: what keys and organizations have used, for invoices and to find leaked keys", verbs: []action{
		{
			verb: "keys", short: "List the requests of API keys by day or month (default: the last 30 days)",
			long: "ALLOWED counts the requests that passed all checks, RATE LIMITED those that got 429, and FORBIDDEN those that got 403.\n" +
				"The counts are written about once a minute, and kept for 400 days. To find keys that nobody uses, use\n" +
				"\"keyhook keys list --unused-for 90d\".",
			example: "key_01h455vb4pex5vsknk084sn02q\n--organization all --step month --since 2030-01-01T00:00:00Z --csv",
			method:  "GET", path: "keys/", fields: usageFields,
			arguments: []argument{{name: "ID", member: "key_id", value: idOrExternalID, optional: true}},
			show:      list{quiet: "key_id", columns: []string{"period", "key_id", "name", "allowed", "rate_limited", "forbidden"}, ofAll: true, hasCSV: true},
		},
		{
			verb: "organizations", short: "List what organizations have published, by day or month (default: the last 30 days)",
			long: "DELIVERIES FAILED counts the deliveries that were given up after their last attempt. STORED BYTES is an estimate. Usage is\n" +
				"kept for 400 days.",
			example: "--step month\n--organization all --step month --since 2030-01-01T00:00:00Z --until 2030-02-01T00:00:00Z --csv",
			method:  "GET", path: "organizations/", fields: usageFields,
			show: list{
				quiet: "organization_id", columns: []string{"period", "name", "events", "deliveries_succeeded", "deliveries_failed", "stored_bytes"},
				ofAll: true, hasCSV: true,
			},
		},
	}}

// queueView also shows which subscriptions have the most pending deliveries.
func queueView(quiet string) thing {
	return thing{quiet: quiet, table: "pending", columns: []string{"pending", "subscription_id", "url_host", "organization_id", "oldest_due"}}
}

var queueNoun = noun{name: "queue", short: "Queue: all pending deliveries, and how to stop sending them", verbs: []action{
	{
		verb: "show", short: "Show the pending deliveries by subscription, and whether the queue is held",
		method: "GET", show: queueView("held"),
	},
	{
		verb: "hold", short: "Stop sending to all receivers until you release or discard the queue",
		long:    "The server finishes the attempts in progress, and still accepts events. The hold survives restarts.",
		example: "--reason \"the new version sends wrong events\"",
		method:  "POST", path: "hold/", fields: []field{{member: "reason", usage: "note for other operators", value: anyText}},
		show: queueView("held"),
	},
	{
		verb: "release", short: "End the hold and send all pending deliveries",
		long:   "To drop the deliveries that were pending when the hold began, use \"keyhook queue discard\" instead.",
		method: "POST", path: "release/", show: queueView("released"),
	},
	{
		verb: "discard", short: "End the hold and drop the deliveries that were pending when the hold began",
		long: "The command drops these deliveries in every organization. It sends the events that were published during the hold.\n" +
			"The dropped deliveries are never sent. To drop nothing, use \"keyhook queue release\" instead.",
		example: "--yes",
		method:  "POST", path: "discard/",
		question: "Drop all deliveries that were pending when the hold began?", show: queueView("dropped"),
	},
}}

var clockNoun = noun{name: "clock", id: "trusted", short: "The clock of the server, and whether it is trusted", verbs: []action{
	{
		verb: "clock", short: "Show the clock of the server, and whether it is trusted",
		long: "If the clock jumps by more than an hour, the server does not trust it. This includes a jump while the server was stopped.\n" +
			"Until you accept the clock, the server does not delete old data.",
		method: "GET",
	},
	{
		verb: "accept", short: "Confirm that the clock of the server is right, so that the server deletes old data again",
		method: "POST", path: "accept/",
	},
}}
