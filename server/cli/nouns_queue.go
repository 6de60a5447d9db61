package cli

const (
	pathQueue = "/api/v1/queue/"

	// queueTable shows for whom most waits.
	queueTable = "pending: pending subscription_id url_host organization_id oldest_due"
)

var queueNoun = noun{name: "queue", short: "The queue: all that waits to be sent, to whomever, and whether it is held", actions: []action{
	{
		use: "show", short: "Show whether the queue is held, and what waits for whom", example: "show",
		method: "GET", path: pathQueue, table: queueTable, id: "held",
	},
	{
		use: "hold", short: "Send nothing more, to anybody, until the queue is released",
		long:    "What is on the wire ends; events are still taken, and wait. The hold outlives restarts.",
		example: "hold --reason \"the new version sends nonsense\"",
		method:  "POST", path: pathQueue + "hold/", table: queueTable, id: "held",
		body: []field{{member: "reason", usage: "why, for whoever looks at it later", kind: prose}},
	},
	{
		use: "release", short: "Send all that waits, and what comes", example: "release",
		method: "POST", path: pathQueue + "release/", table: queueTable, id: "released",
	},
	{
		use: "discard", short: "Drop what was waiting when the queue was held, and send what came later",
		long:    "It drops what waits of every organization. The events stay, and can be replayed to a subscription.",
		example: "discard --yes",
		method:  "POST", path: pathQueue + "discard/", table: queueTable, id: "dropped",
		asks: "Drop all that was waiting when the queue was held?",
	},
}}
