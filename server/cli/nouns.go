package cli

import "time"

// The lists of the API.
const (
	pathKeys          = "/api/v1/api-keys/"
	pathSubscriptions = "/api/v1/webhooks/subscriptions/"
	pathEvents        = "/api/v1/events/"
	pathAudit         = "/api/v1/audit-events/"
	pathOrganizations = "/api/v1/organizations/"
	pathUsers         = "/api/v1/users/"
	pathRoles         = "/api/v1/roles/"
	pathPermissions   = "/api/v1/permissions/"
	pathPlans         = "/api/v1/plans/"
)

// The longest that the API takes.
const week = 7 * 24 * time.Hour

// nouns are all that the commands can be about, in the order of the help.
var nouns = []noun{keyNoun, subscriptionNoun, deliveryNoun, eventNoun, organizationNoun, userNoun, roleNoun, permissionNoun, planNoun, auditNoun, queueNoun, clockNoun}

var aKeyID = []argument{{name: "ID", kind: idOf(keyIDs)}}

// expiry is when something ends, as a time or from now on.
var expiry = []field{
	{member: "expires_at", usage: "when it ends; it does not, unless this is given", kind: moment},
	{member: "expires_at", flag: "expires-in", usage: "how long it lasts, as 720h", kind: later},
}

var keyNoun = noun{name: "keys", short: "API keys: for the scripts and servers of customers", actions: []action{
	{
		use: "list", short: "List the API keys of an organization", example: "list --status all",
		method: "GET", path: pathKeys, list: "id name status key_prefix scope created_at expires_at last_used_at",
		query: []field{{member: "status", usage: "which of them (default active)", kind: choice("active", "revoked", "expired", "all")}},
	},
	{
		use: "get ID", short: "Show an API key", example: "get key_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathKeys + "{}/", arguments: aKeyID,
	},
	{
		use: "create", short: "Create an API key, which is shown this once",
		long:    "Its scope is what you ask for and hold yourself. Over the local socket you hold everything.",
		example: "create --name backend --scope events:write\ncreate --name ci --scope \"events:read events:write\" --expires-in 720h --quiet",
		method:  "POST", path: pathKeys, secret: "key",
		body: append([]field{
			{member: "name", usage: "what to call it", kind: line, required: true},
			{member: "scope", usage: "the permissions it is to have", kind: scope, required: true},
		}, expiry...),
	},
	{
		use: "rotate ID", short: "Replace an API key by a new one with the same scope, which is shown this once",
		example: "rotate key_01h455vb4pex5vsknk084sn02q --grace 1h",
		method:  "POST", path: pathKeys + "{}/rotate/", arguments: aKeyID, secret: "key",
		body: []field{{member: "grace_seconds", flag: "grace", usage: "how long the old one still works, up to 168h (default 0s)", kind: seconds(week)}},
	},
	{
		use: "delete ID", short: "Revoke an API key, from the next request on", example: "delete key_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathKeys + "{}/", arguments: aKeyID, done: "API key %s is revoked.",
	},
	{
		use: "verify KEY", short: "Ask what an API key is good for; it fails where that is nothing",
		long:    "KEY may be - for one on the standard input, where nobody sees it. The question counts as one request of the key.",
		example: "verify - <key.txt\nverify svc_… --permission events:write",
		method:  "POST", path: "/api/v1/auth/verify/", arguments: []argument{{name: "KEY", member: "key", kind: credential}},
		body: []field{{member: "permission", usage: "what it must be allowed", kind: permission}}, id: "code", holds: "valid=true", fails: "the key is not good for this",
	},
	{
		use: "explain KEY|ID METHOD PATH", short: "Tell, check by check, why a request with an API key is allowed or refused",
		long: "KEY may be - for one on the standard input. PATH is one of Keyhook's, or of your own API with --permission. The command\n" +
			"fails where the request would be refused. Nothing is counted.",
		example: "explain key_01h455vb4pex5vsknk084sn02q POST /api/v1/events/\nexplain key_01h455vb4pex5vsknk084sn02q GET /orders --permission orders:read",
		method:  "POST", path: "/api/v1/auth/explain/", id: "code", table: "checks: check verdict value detail",
		holds: "allowed=true", fails: "the request would be refused",
		arguments: []argument{{name: "KEY|ID", member: "key", kind: keyOrID}, {name: "METHOD", member: "method", kind: method}, {name: "PATH", member: "path", kind: requestPath}},
		body:      []field{{member: "permission", usage: "what it must be allowed, beside what a path of Keyhook's needs", kind: permission}},
	},
}}

var auditNoun = noun{name: "audit", short: "The audit log: who changed what", actions: []action{{
	use: "list", short: "List the audit log of an organization, the latest first", example: "list --type api_key_created --since 24h",
	method: "GET", path: pathAudit, list: "at type actor.type actor.name target.type target.id details",
	query: append([]field{
		{member: "type", usage: "only events of this type, as api_key_revoked", kind: line},
		{member: "actor", usage: "only what this one did: the id of a user or a key, or system", kind: line},
	}, period...),
}}}

// period is a part of a log.
var period = []field{
	{member: "since", usage: "from this time on, or from so long ago on, as 24h", kind: past},
	{member: "until", usage: "before this time, or before so long ago", kind: past},
}
