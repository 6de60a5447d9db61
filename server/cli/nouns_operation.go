package cli

var auditNoun = noun{name: "audit", short: "The audit log: who changed what", verbs: []action{{
	use: "list", short: "List the audit log of an organization, newest first", example: "list --type api_key_created --since 24h",
	method: "GET", path: pathAudit, columns: "at type actor.type actor.name target.type target.id details",
	query: append([]field{
		{member: "type", usage: "only events of this type, such as api_key_revoked", value: someText},
		{member: "actor", usage: "only changes by this actor: the id of a user or an API key, or system", value: someText},
	}, periodFields...),
}}}

// queueTable shows which subscriptions have the most pending deliveries.
const queueTable = "pending: pending subscription_id url_host organization_id oldest_due"

var queueNoun = noun{name: "queue", short: "The queue of all pending deliveries, and whether it is held", verbs: []action{
	{
		use: "show", short: "Show whether the queue is held, and the pending deliveries by subscription", example: "show",
		method: "GET", path: pathQueue, table: queueTable, id: "held",
	},
	{
		use: "hold", short: "Send nothing to any receiver until you release or discard the queue",
		long:    "Requests that are being sent are finished. The server still accepts events. The hold survives restarts.",
		example: "hold --reason \"the new version sends wrong events\"",
		method:  "POST", path: pathQueue + "hold/", table: queueTable, id: "held",
		body: []field{{member: "reason", usage: "a note for the person who looks at the queue later", value: anyText}},
	},
	{
		use: "release", short: "End the hold and send all pending deliveries",
		long:    "To drop the deliveries that were pending when the queue was held, use \"keyhook queue discard\" instead.",
		example: "release",
		method:  "POST", path: pathQueue + "release/", table: queueTable, id: "released",
	},
	{
		use: "discard", short: "End the hold, and drop the deliveries that were pending when the queue was held",
		long: "It drops the deliveries of every organization. Events that were published after the hold began are sent. The dropped events\n" +
			"stay in the database, and you can replay them to a subscription. To drop nothing, use \"keyhook queue release\" instead.",
		example: "discard --yes",
		method:  "POST", path: pathQueue + "discard/", table: queueTable, id: "dropped",
		question: "Drop all deliveries that were pending when the queue was held?",
	},
}}

var clockNoun = noun{
	name: "clock", short: "The clock of the server, and whether it is trusted",
	noVerb: &action{
		use: "clock", short: "Show the clock of the server, and whether it is trusted",
		long:    "A clock that jumps by more than an hour is not trusted, also after a stop of the server. Until you accept the clock, nothing is\ndeleted by age.",
		example: "clock", method: "GET", path: pathClock, id: "trusted",
	},
	verbs: []action{{
		use: "accept", short: "Confirm that the clock of the server is right, so that old rows are deleted again",
		example: "accept", method: "POST", path: pathClock + "accept/", id: "trusted",
	}},
}
