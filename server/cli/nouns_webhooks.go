package cli

import (
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/explain"
)

// urlIsReceiver is for the commands whose --url is a field of the API.
const urlIsReceiver = "Here, --url is the URL of the receiver. To call a server on another machine, set " + client.EnvURL + " and " + client.EnvToken + "."

// subscriptionFields are the settings of a subscription.
func subscriptionFields(isNew bool) []field {
	eventTypes, isActive := `the event types to send, such as order.created or order.*; "" means every type`, "whether to send deliveries"
	eventList, filterList := words, conditions
	headers := "file with all own request headers, one \"Name: value\" on a line, or - for the standard input; a name alone keeps its value"
	filters := `a condition on the data of events, such as 'customer.country in ["CH", "DE"]'; all must hold; "" removes the filter`
	auditEvents := "whether to send audit events too; needs the permission audit:read"
	if isNew {
		eventList, filterList = someWords, someConditions
		filters = `a condition on the data of events, such as 'amount gte 100' or 'customer.country in ["CH", "DE"]'; all must hold`
		auditEvents += " (default: true if you have it)"
		headers = "file with own request headers, one \"Name: value\" on a line, or - for the standard input"
		eventTypes = "the event types to send, such as order.created or order.* (default: every type)"
		isActive += " (default true)"
	}
	return []field{
		{member: "url", usage: "the URL of the receiver, or none: nothing is sent, and a program reads the events, such as keyhook listen --from", value: urlOrNone, required: isNew},
		{member: "event_types", usage: eventTypes, value: eventList},
		{member: "filter", usage: filters, value: filterList},
		{member: "audit_events", usage: auditEvents, value: boolean},
		{member: "description", usage: "note for people", value: anyText},
		{member: "is_active", usage: isActive, value: boolean},
		{member: "rate_limit_per_second", usage: "maximum number of requests per second, or unlimited", value: limit},
		{member: "ordered", usage: "whether to send one delivery at a time, in the order of publication", value: boolean},
		externalIDField,
		{member: "headers", flag: "headers-file", usage: headers, value: requestHeaders},
	}
}

// secretField imports a signing secret.
var secretField = field{member: "secret", flag: "secret-file", usage: "file with a signing secret of your own, or - for the standard input", value: importedSecret}

var subscriptionNoun = noun{name: "subscriptions", path: "/api/v1/webhooks/subscriptions/", item: "SUBSCRIPTION", example: "sub_01h455vb4pex5vsknk084sn02q",
	short: "Webhook subscriptions: where events are sent", verbs: []action{
		{
			verb: "list", short: "List the webhook subscriptions of an organization", example: "--status failing\n--organization all --status failing,disabled",
			fields: []field{{member: "status", usage: "only subscriptions with one of these statuses: healthy, failing, disabled", value: joined("list", ",", "healthy", "failing", "disabled")},
				{member: "paused", usage: "only subscriptions that a person has paused; with --paused=false, only the others", value: boolean},
				{member: "pending", usage: "only subscriptions for which deliveries wait; with --pending=false, only the others", value: boolean},
				{member: "search", usage: "only subscriptions with this text in the URL or the description", value: someText}},
			show: list{columns: []string{"id", "url", "event_types", "status", "blocked_by", "consecutive_failures", "pending_deliveries", "last_error"}, ofAll: true},
		},
		{verb: "get", short: "Show a subscription"},
		{
			verb: "create", short: "Create a subscription and show its signing secret once",
			long: "The secret and the headers come from files, because ps shows flags. Keyhook never shows the values of headers again.\n\n" +
				urlIsReceiver,
			example: "--url https://example.com/hook\n--url none --event-types 'order.*'\n--url https://example.com/hook --event-types 'order.*,user.created'\n" +
				"--url https://example.com/hook --headers-file headers.txt --secret-file secret.txt",
			fields: append(subscriptionFields(true), secretField), show: thing{secret: "secret"},
		},
		{
			verb: "update", short: "Change a subscription",
			long:    "The headers come from a file, because ps shows flags.\n\n" + urlIsReceiver,
			example: "sub_01h455vb4pex5vsknk084sn02q --url https://example.com/other --event-types \"\"",
			fields:  subscriptionFields(false),
		},
		{
			verb: "preview-filter", short: "Try a filter on the newest events",
			long: "A condition is a path, an operator and a value: customer.country eq CH. The operators are eq, ne, in, lt, lte, gt, gte, prefix\n" +
				"and exists. A value is JSON, such as 100, true or [\"CH\", \"DE\"]. Anything else is text.",
			example: "--filter 'amount gte 100' --filter 'customer.country in [\"CH\", \"DE\"]'",
			method:  "POST", path: "/api/v1/webhooks/filters/preview/", fields: []field{
				{member: "filter", usage: "a condition; all must hold", value: conditions, required: true},
				{member: "event_types", usage: "only events of these types (default: every type)", value: someWords},
			},
			show: thing{quiet: "matched"},
		},
		{
			verb: "delete", short: "Delete a subscription and stop sending to it",
			question: "Delete this subscription for good? Its secret ends, and its pending deliveries are never sent.", atTerminal: true,
			show: done("Deleted subscription %s."),
		},
		{
			verb: "rotate-secret", short: "Replace the signing secret and show the new secret once",
			long: "After a rotation, the old secret signs too until the overlap ends. Another rotation is refused until then. To rotate\n" +
				"anyway, use --force.",
			example: "sub_01h455vb4pex5vsknk084sn02q --overlap 1h",
			method:  "POST", path: "{}/rotate-secret/", fields: []field{
				secretField,
				{member: "overlap_seconds", flag: "overlap", usage: "how long the old secret signs too, up to 7d (default 24h)", value: seconds},
				{member: "force", usage: "end the last overlap now; receivers with the secret from before it will refuse deliveries", value: boolean},
			},
			show: thing{secret: "secret"},
		},
		{
			verb: "test", short: "Send a test event now",
			long:    "The exit code is 1 if the event is not accepted.",
			example: "sub_01h455vb4pex5vsknk084sn02q\nsub_01h455vb4pex5vsknk084sn02q --event-type order.paid",
			method:  "POST", path: "{}/test/",
			fields: []field{{member: "event_type", usage: "send the example of this type in the catalogue (default: a webhook_test event)", value: identifier("type")}},
			show:   thing{condition: condition{"outcome", "succeeded", "the test event was not accepted"}},
		},
		{
			verb: "replay", short: "Send the events that a subscription did not get",
			long: "These are failed deliveries and missed events. A delivery has failed after its last attempt. An event was missed if the\n" +
				"plan had no webhooks, or if the subscription did not want the type yet. Deliveries that wait for a disabled\n" +
				"subscription are not missed: \"reactivate\" sends them. The operation is idempotent.",
			example: "sub_01h455vb4pex5vsknk084sn02q --since 24h --dry-run",
			method:  "POST", path: "{}/replay/", fields: []field{
				{member: "since", usage: "only events from this time; 24h means 24 hours ago", value: timeOrAgo, required: true},
				{member: "until", usage: "only events before this time; 1h means one hour ago", value: timeOrAgo},
				{member: "event_types", usage: "only events of these types", value: someWords},
				{member: "only", usage: "only failed deliveries, or only missed events (default all)", value: oneOf("failed", "missed", "all")},
				{member: "dry_run", usage: "count the events, and send nothing", value: boolean},
			},
			show: thing{quiet: "deliveries", flat: []string{"reasons"}},
		},
		{
			verb: "recover", short: "Send again after a receiver was repaired: what waits, and what failed in the outage",
			long: "The command activates the subscription. Pending deliveries are sent at once, also those that wait for a retry. It also\n" +
				"sends the events again whose last attempt failed since the outage began. If a person has paused the subscription, the\n" +
				"command needs --activate. The operation is idempotent. At a terminal, the command shows the numbers first and asks.",
			example: "sub_01h455vb4pex5vsknk084sn02q --dry-run\nsub_01h455vb4pex5vsknk084sn02q --since 24h",
			method:  "POST", path: "{}/recover/", fields: []field{
				{member: "since", usage: "only deliveries that failed since this time; 24h means 24 hours ago (default: since the outage began)", value: timeOrAgo},
				{member: "activate", usage: "also recover and activate a subscription that a person has paused", value: boolean},
				{member: memberDryRun, usage: "show the numbers, and change nothing", value: boolean},
			},
			question: "Activate the subscription? Pending deliveries that are sent: {pending}. Deliveries that failed since {since} and are sent again: {deliveries}.", atTerminal: true,
			show: thing{quiet: "deliveries"},
		},
		{
			verb: "discard", short: "Drop the pending deliveries of a subscription, so that they are never sent",
			long:    "The events stay. The operation is idempotent.",
			example: "sub_01h455vb4pex5vsknk084sn02q --yes\nsub_01h455vb4pex5vsknk084sn02q --before 24h --yes",
			method:  "POST", path: "{}/discard/", fields: []field{
				{member: "before", usage: "only deliveries of events from before this time; 24h means 24 hours ago", value: timeOrAgo},
			},
			question: "Drop the pending deliveries of this subscription? They are never sent.",
			show:     thing{quiet: "deliveries"},
		},
		{
			verb: "reactivate", short: "Resume sending to a disabled or paused subscription, pending deliveries first",
			long:   "To also send the events again whose last attempt failed in an outage, use \"keyhook subscriptions recover\" instead.",
			method: "PATCH", path: "{}/", members: map[string]any{"is_active": true},
		},
		{
			verb: "pause", short: "Stop sending to a subscription until you reactivate it; its deliveries wait",
			long: "Events that are published meanwhile wait, too. What is older than storage.retention_events is deleted. To delete all that\n" +
				"waits, use \"keyhook subscriptions discard\".",
			method: "PATCH", path: "{}/", members: map[string]any{"is_active": false},
		},
	}}

var deliveryNoun = noun{name: "deliveries", path: "/api/v1/webhooks/subscriptions/{SUBSCRIPTION}/deliveries/", item: "ATTEMPT",
	short: "Delivery attempts: what was sent, and how receivers responded", verbs: []action{
		{
			verb: "list", short: "List the delivery attempts of a subscription, newest first",
			example: "sub_01h455vb4pex5vsknk084sn02q --outcome failed --since 1h",
			fields: append([]field{
				{member: "outcome", usage: "only attempts with this outcome", value: oneOf("succeeded", "failed", "sending", "interrupted")},
				{member: "event_type", usage: "only events of this type", value: someText},
				{member: "event_id", usage: "only this event", value: id},
			}, periodFields...),
			show: list{columns: []string{
				"id", "attempted_at", "event_id", "event_type", "attempt_number", "trigger", "outcome",
				"response_status", "duration_ms", "error", "next_attempt_at",
			}},
		},
		{
			verb: "get", short: "Show a delivery attempt with its request and the response",
			long:    "Signatures are masked. The command shows the body of the request only if you may read the event.",
			example: "sub_01h455vb4pex5vsknk084sn02q att_01h455vb4pex5vsknk084sn02q",
			show:    thing{flat: []string{"request", "request.headers"}},
		},
		{
			verb: "redeliver", short: "Send the event of an attempt again",
			example: "sub_01h455vb4pex5vsknk084sn02q att_01h455vb4pex5vsknk084sn02q",
			method:  "POST", path: "{}/redeliver/",
			show: thing{quiet: "deliveries"},
		},
	}}

// listedFields select what "events list" shows with the same flags, to send it again.
func listedFields(states ...string) []field {
	return []field{
		{member: "state", usage: "only events with a delivery in this state", value: oneOf(states...), required: true},
		{member: "since", usage: "only events from this time; 24h means 24 hours ago", value: timeOrAgo, required: true},
		{member: "until", usage: "only events before this time; 1h means one hour ago", value: timeOrAgo},
		{member: "event_type", flag: "type", usage: "only events of this type, such as order.created, or with this prefix, such as order.*", value: someText},
		{member: "subscription_id", flag: "subscription", usage: "only deliveries to this subscription", value: idOrExternalID},
		{member: "audit_events", flag: "audit", usage: "audit events, too", value: boolean, fallback: "false", beside: "type"},
		{member: memberDryRun, usage: "show the numbers, and change nothing", value: boolean},
	}
}

var eventNoun = noun{name: "events", item: "EVENT", example: "evt_01h455vb4pex5vsknk084sn02q",
	short: "Events: what happened, and where it was delivered", verbs: []action{
		{
			verb: "list", short: "List the events of an organization, newest first",
			long: "Audit events are left out, unless you ask for them with --audit, or for a type with --type.",
			example: "--limit 10\n--audit\n--organization all --type 'order.*' --since 24h\n" +
				"--state exhausted --subscription sub_01h455vb4pex5vsknk084sn02q",
			fields: append([]field{
				{member: "type", usage: "only events of this type, such as order.created, or with this prefix, such as order.*", value: someText},
				{member: "idempotency_key", usage: "only events that were published with this idempotency key", value: someText},
				{member: "state", usage: "only events with a delivery in this state, or nobody for events without one",
					value: oneOf("delivered", "pending", "exhausted", "dropped", "expired", "nobody")},
				{member: "subscription_id", flag: "subscription", usage: "look only at the deliveries to this subscription", value: idOrExternalID},
				{member: "audit_events", flag: "audit", usage: "show audit events, too", value: boolean, fallback: "false", beside: "type"},
			}, periodFields...),
			show: list{columns: []string{"id", "timestamp", "type", "deliveries"}, ofAll: true},
		},
		{
			verb: "get", short: "Show an event and the state of its deliveries",
			show: thing{table: "deliveries", columns: []string{"subscription_id", "state", "attempts", "next_attempt_at"}},
		},
		{
			verb: "explain", short: "Explain why an event did or did not arrive, for each subscription",
			long: "Below the table, each subscription has a sentence that says what happened. If a command mends it, the command follows.\n" +
				"Subscriptions that do not want the event are only counted.\n" +
				"With --quiet, the command prints only the verdicts.",
			example: "evt_01h455vb4pex5vsknk084sn02q\nevt_01h455vb4pex5vsknk084sn02q sub_01h455vb4pex5vsknk084sn02q",
			method:  "GET", path: "{}/explain/",
			arguments: []argument{{name: "SUBSCRIPTION", member: "subscription_id", value: idOrExternalID, optional: true}},
			show: list{quiet: "verdict", columns: []string{"subscription_id", "url_host", "verdict", "attempts", "next_attempt_at"},
				detail: "detail", command: "advice", fold: string(explain.NotWanted)},
		},
		{
			verb: "recover", short: "Send all events again that a list shows and that have not arrived",
			long: "The command acts on what \"events list\" shows with the same flags, up to 10,000 events and deliveries. It sends nothing that\n" +
				"has arrived since, or that waits. It activates the subscriptions that failures have disabled, but none that a person has\n" +
				"paused. The operation is idempotent. At a terminal, the command shows the numbers first and asks.",
			example: "--state exhausted --since 24h --dry-run\n--state dropped --since 7d --subscription sub_01h455vb4pex5vsknk084sn02q --type 'order.*'",
			method:  "POST", path: "/api/v1/webhooks/recover/", fields: listedFields("exhausted", "dropped", "expired"),
			question: "Recover these subscriptions? Pending deliveries that are sent: {pending}. New ones: {deliveries}, of {events} events to {subscriptions} subscriptions.", atTerminal: true,
			show: thing{quiet: "deliveries"},
		},
		{
			verb: "redeliver", short: "Send all events again that a list shows, even if they have arrived",
			long: "The command acts on what \"events list\" shows with the same flags, up to 10,000 events and deliveries. It sends nothing that\n" +
				"waits already. It activates no subscription. At a terminal, the command shows the numbers first and asks.",
			example: "--state delivered --since 2h --until 1h --subscription sub_01h455vb4pex5vsknk084sn02q --dry-run",
			method:  "POST", path: "/api/v1/webhooks/redeliver/", fields: listedFields("delivered", "exhausted", "dropped"),
			question: "Send these events again? New deliveries: {deliveries}, of {events} events to {subscriptions} subscriptions.", atTerminal: true,
			show: thing{quiet: "deliveries"},
		},
		{
			verb: "publish", short: "Publish an event and wait until it is on disk",
			long:    "JSON is an object with the data of the event. If JSON is -, the command reads the data from the standard input.",
			example: "order.created '{\"number\": 1001}' --idempotency-key order-1001",
			method:  "POST", arguments: []argument{
				{name: "TYPE", member: "type", value: someText},
				{name: "JSON", member: "data", value: anyJSON, fallback: "{}", optional: true},
			},
			fields: []field{{member: "idempotency_key", usage: "the server ignores a second event with the same key", value: someText}},
		},
	}}

var eventTypeNoun = noun{name: "event-types", item: "TYPE", example: "order.paid", id: "type",
	short: "Event types: the catalogue, and what was published", verbs: []action{
		{
			verb: "list", short: "List the types of the newest events, and the types of the catalogue",
			show: list{columns: []string{"type", "group", "description", "last_seen_at"}, whole: true},
		},
		{verb: "get", short: "Show an event type"},
		{
			verb: "set", short: "Add an event type to the catalogue, or change what the catalogue says about it",
			long: "All organizations see the catalogue. No event is checked against it. A new type needs --description.",
			example: "order.paid --description \"An order was paid\" --group Orders --example '{\"number\": 1001}'\n" +
				"order.paid --group \"\"",
			method: "PUT", path: "{}/", fields: []field{
				{member: "description", usage: "what events of the type tell", value: someText},
				{member: "group", usage: `a name that related types share; "" removes it`, value: textOrNull},
				{member: "example", usage: `the data of an event, a JSON object; "" removes it`, value: jsonOrNull},
				{member: "schema", usage: `a description of the data, a JSON object such as a JSON Schema; "" removes it`, value: jsonOrNull},
			},
		},
		{
			verb: "delete", short: "Remove an event type from the catalogue",
			long: "Subscriptions to the type stay as they are.",
			show: done("Deleted event type %s."),
		},
	}}
