package cli

import "github.com/keyhook/keyhook/server/cli/client"

var aSubscription = argument{name: "SUBSCRIPTION", kind: idOf(subscriptionIDs)}

// attemptColumns show what a table of attempts is looked at for.
const attemptColumns = "id attempted_at event_type attempt_number trigger outcome response_status duration_ms error next_attempt_at"

// remoteByEnvironment is for the commands whose --url is the API's.
const remoteByEnvironment = "Here --url is where events are sent. Name a server elsewhere by " + client.EnvURL + " and " + client.EnvToken + "."

// subscriptionFields are what may be set of a subscription.
func subscriptionFields(isNew bool) []field {
	return []field{
		{member: "url", usage: "where events are sent", kind: line, required: isNew},
		{member: "event_types", usage: "which events, as order.created or order.*; empty is every type", kind: items},
		{member: "audit_events", usage: "whether audit events are among them; true needs audit:read", kind: yes},
		{member: "description", usage: "a note for people", kind: prose},
		{member: "is_active", usage: "whether anything is sent", kind: yes},
		{member: "rate_limit_per_second", usage: "requests a second at most, or unlimited", kind: unlimitable(1, 10_000)},
	}
}

var subscriptionNoun = noun{name: "subscriptions", short: "Webhook subscriptions: where events are sent", actions: []action{
	{
		use: "list", short: "List the webhook subscriptions of an organization", example: "list --status failing",
		method: "GET", path: pathSubscriptions, list: "id url event_types status consecutive_failures pending_deliveries last_error",
		query: []field{{member: "status", usage: "only those with this status", kind: choice("healthy", "failing", "disabled")}},
	},
	{
		use: "get SUBSCRIPTION", short: "Show a subscription", example: "get sub_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathSubscriptions + "{}/", arguments: []argument{aSubscription},
	},
	{
		use: "create", short: "Create a subscription; its signing secret is shown this once",
		long:    remoteByEnvironment,
		example: "create --url https://example.com/hook --event-types order.*,user.created",
		method:  "POST", path: pathSubscriptions, secret: "secret", body: subscriptionFields(true),
	},
	{
		use: "update SUBSCRIPTION", short: "Change a subscription", long: remoteByEnvironment, example: "update sub_01h455vb4pex5vsknk084sn02q --url https://example.com/other",
		method: "PATCH", path: pathSubscriptions + "{}/", arguments: []argument{aSubscription}, body: subscriptionFields(false),
	},
	{
		use: "delete SUBSCRIPTION", short: "Remove a subscription; nothing more is sent", example: "delete sub_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathSubscriptions + "{}/", arguments: []argument{aSubscription}, done: "Subscription %s is removed.",
	},
	{
		use: "rotate-secret SUBSCRIPTION", short: "Make a new signing secret, which is shown this once",
		long:    "The command is refused while the secret from before the last rotation still signs. Use --force to rotate anyway.",
		example: "rotate-secret sub_01h455vb4pex5vsknk084sn02q --overlap 1h",
		method:  "POST", path: pathSubscriptions + "{}/rotate-secret/", arguments: []argument{aSubscription}, secret: "secret",
		body: []field{
			{member: "overlap_seconds", flag: "overlap", usage: "how long the old one signs too, up to 168h (default 24h)", kind: seconds(week)},
			{member: "force", usage: "end the overlap of the last rotation now; receivers that still have the older secret then refuse deliveries", kind: yes},
		},
	},
	{
		use: "test SUBSCRIPTION", short: "Send a test event now; it fails where the receiver does not take it",
		example: "test sub_01h455vb4pex5vsknk084sn02q",
		method:  "POST", path: pathSubscriptions + "{}/test/", arguments: []argument{aSubscription},
		holds: "outcome=succeeded", fails: "the receiver has not taken it",
	},
	{
		use: "replay SUBSCRIPTION", short: "Send again what a subscription has not got",
		long:    "That is what ended failed, and what came while it was disabled or its plan lacked webhooks. Repeating it makes nothing twice.",
		example: "replay sub_01h455vb4pex5vsknk084sn02q --since 24h --dry-run",
		method:  "POST", path: pathSubscriptions + "{}/replay/", arguments: []argument{aSubscription}, id: "deliveries",
		body: []field{
			{member: "since", usage: "events from this time on, or from so long ago on, as 24h", kind: past, required: true},
			{member: "until", usage: "events before this time, or before so long ago", kind: past},
			{member: "event_types", usage: "only events of these types", kind: items},
			{member: "only", usage: "only what failed, or what was missed (default all)", kind: choice("failed", "missed", "all")},
			{member: "dry_run", usage: "count, and send nothing", kind: yes},
		},
	},
	{
		use: "reactivate SUBSCRIPTION", short: "Have a disabled subscription sent to again, beginning with what waits",
		example: "reactivate sub_01h455vb4pex5vsknk084sn02q",
		method:  "PATCH", path: pathSubscriptions + "{}/", arguments: []argument{aSubscription}, fixed: object{"is_active": true},
	},
	{
		use: "pause SUBSCRIPTION", short: "Have nothing sent to a subscription until it is reactivated; what comes waits",
		example: "pause sub_01h455vb4pex5vsknk084sn02q",
		method:  "PATCH", path: pathSubscriptions + "{}/", arguments: []argument{aSubscription}, fixed: object{"is_active": false},
	},
}}

var deliveryNoun = noun{name: "deliveries", short: "Delivery attempts: what was sent, and what was answered", actions: []action{
	{
		use: "list SUBSCRIPTION", short: "List the delivery attempts of a subscription, the latest first",
		example: "list sub_01h455vb4pex5vsknk084sn02q --outcome failed --since 1h",
		method:  "GET", path: pathSubscriptions + "{}/deliveries/", arguments: []argument{aSubscription}, list: attemptColumns,
		query: append([]field{
			{member: "outcome", usage: "only those that ended so", kind: choice("succeeded", "failed")},
			{member: "event_type", usage: "only events of this type", kind: line},
			{member: "event_id", usage: "only this event", kind: idOf(eventIDs)},
		}, period...),
	},
	{
		use: "redeliver SUBSCRIPTION ATTEMPT", short: "Send the event of an attempt again",
		example: "redeliver sub_01h455vb4pex5vsknk084sn02q att_01h455vb4pex5vsknk084sn02q",
		method:  "POST", path: pathSubscriptions + "{}/deliveries/{}/redeliver/", id: "deliveries",
		arguments: []argument{aSubscription, {name: "ATTEMPT", kind: idOf(attemptIDs)}},
	},
}}

var eventNoun = noun{name: "events", short: "Events: what has happened, and who was told", actions: []action{
	{
		use: "list", short: "List the events of an organization, the latest first", example: "list --limit 10",
		method: "GET", path: pathEvents, list: "id timestamp type deliveries",
	},
	{
		use: "get EVENT", short: "Show an event, and where each of its deliveries stands", example: "get evt_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathEvents + "{}/", arguments: []argument{{name: "EVENT", kind: idOf(eventIDs)}},
		table: "deliveries: subscription_id state attempts next_attempt_at",
	},
	{
		use: "publish TYPE [JSON|-]", short: "Publish an event: it is durable once this returns",
		long:    "JSON is the event's data, an object; - reads it from the standard input.",
		example: "publish order.created '{\"number\": 1001}' --idempotency-key order-1001",
		method:  "POST", path: pathEvents, arguments: []argument{
			{name: "TYPE", member: "type", kind: line}, {name: "JSON", member: "data", kind: document, fallback: "{}"},
		},
		body: []field{{member: "idempotency_key", usage: "publishing again with it makes nothing twice", kind: line}},
	},
}}
