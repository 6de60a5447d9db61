package cli

// externalIDField is the id of a thing in the product that uses Keyhook.
var externalIDField = field{member: "external_id", usage: "id in your own product; \"\" removes the id", value: textOrNull}

// dryRunField asks what a request would end.
var dryRunField = []field{{member: memberDryRun, usage: "show the numbers, and change nothing", value: boolean}}

var keyNoun = noun{name: "keys", path: "/api/v1/api-keys/", item: "ID", example: "key_01h455vb4pex5vsknk084sn02q",
	short: "API keys: credentials for the scripts and servers of customers", verbs: []action{
		{
			verb: "list", short: "List the API keys of an organization", example: "--status all\n--organization all --prefix svc_AbCdEf",
			fields: []field{
				{member: "status", usage: "only keys with this status (default active, with --prefix all)", value: oneOf("active", "revoked", "expired", "all")},
				{member: "prefix", usage: "only keys with this key_prefix", value: valueType{name: "prefix", parse: someText.parse}},
				{member: "unused_for", usage: "only keys that nobody has used for so long, such as 90d", value: period},
			},
			show: list{columns: []string{"id", "name", "status", "key_prefix", "scope", "created_at", "expires_at", "last_used_at"}, ofAll: true},
		},
		{verb: "get", short: "Show an API key", show: thing{flat: []string{"creator"}}},
		{
			verb: "create", short: "Create an API key and show it once",
			long: "The key gets those permissions of --scope that you have. Over the local socket, you have all permissions.\n\n" +
				"With --organization, a key in the organization of a customer belongs to the service account of the organization. So it\n" +
				"does not end when a person leaves. With --user, it belongs to that member.",
			example: "--name backend --scope events:write\n--name backend --scope events:write --organization acme-17\n--name acme-1 --scope orders:read --metadata '{\"customer\": 17}'\n--name ci --scope \"events:read events:write\" --expires-in 30d --quiet",
			fields: append([]field{
				{member: "name", usage: "the name of the key", value: someText, required: true},
				{member: "scope", usage: "the permissions of the key", value: scope, required: true},
				{member: "external_id", usage: "id in your own product; a second key with it is refused, so a script can repeat the command", value: identifier("external-id")},
				{member: "allowed_networks", usage: "addresses and networks from which the key may be used; never changes (default: everywhere)", value: someWords},
				{member: "metadata", usage: "a JSON object of your own, which reads and verify return; it never changes", value: anyJSON},
				{member: "user_id", flag: "user", usage: "the member to whom the key belongs: an id or an external id", value: idOrExternalID},
			}, expiryFields...),
			show: thing{secret: "key", flat: []string{"creator"}},
		},
		{
			verb: "rotate", short: "Replace an API key with a new key of the same scope, and show the new key once",
			example: "key_01h455vb4pex5vsknk084sn02q --grace 1h",
			method:  "POST", path: "{}/rotate/",
			fields: []field{{member: "grace_seconds", flag: "grace", usage: "how long the old key still works, up to 7d (default 0s)", value: seconds}},
			show:   thing{secret: "key", flat: []string{"creator"}},
		},
		{verb: "delete", short: "Revoke an API key at once", show: done("Revoked API key %s.")},
		{
			verb: "verify", short: "Check whether an API key is valid, and whether it has a permission",
			long: "If KEY is -, the command reads the key from the standard input. This is safer, because ps shows arguments. The check\n" +
				"counts as one request of the key. The exit code is 1 if the key is refused.",
			example: "- <key.txt\nsvc_… --permission events:write",
			method:  "POST", path: "/api/v1/auth/verify/", arguments: []argument{{name: "KEY", member: "key", value: apiKey}},
			fields: []field{
				{member: "permission", usage: "the permission that the key must have", value: permission},
				{member: "client_ip", usage: "the address of the client that sent you the key; needed for a key with allowed networks", value: someText},
			},
			show: thing{quiet: "code", condition: condition{"valid", "true", "the key is refused"}},
		},
		{
			verb: "explain", short: "Explain why a request with an API key is allowed or refused",
			long: "The command shows the result of each check. It does not count as a request of the key. If KEY is -, the command reads\n" +
				"the key from the standard input. ID may be the external id. PREFIX is the key_prefix that lists show. PATH is a path of\n" +
				"Keyhook. With --permission, PATH is a path of your own API. The exit code is 1 if the request would be refused.",
			example: "key_01h455vb4pex5vsknk084sn02q POST /api/v1/events/\nkey_01h455vb4pex5vsknk084sn02q GET /orders --permission orders:read",
			method:  "POST", path: "/api/v1/auth/explain/", arguments: []argument{
				{name: "KEY|ID|PREFIX", member: "key", value: apiKeyOrID},
				{name: "METHOD", member: "method", value: method},
				{name: "PATH", member: "path", value: anyPath},
			},
			fields: []field{
				{member: "permission", usage: "permission that your own API requires for PATH", value: permission},
				{member: "client_ip", usage: "the address of the client, to check it against the networks of the key", value: someText},
			},
			show: thing{quiet: "code", table: "checks", columns: []string{"check", "verdict", "value", "detail"},
				condition: condition{"allowed", "true", "the request would be refused"}},
		},
	}}

func organizationFields(isNew bool) []field {
	return []field{
		{member: "name", usage: "the name of the organization", value: someText, required: isNew},
		{member: "plan", usage: "the plan of the organization", value: named, required: isNew},
	}
}

var organizationNoun = noun{name: "organizations", item: "ORGANIZATION", example: "org_01h455vb4pex5vsknk084sn02q",
	short: "Organizations: your customers, each with a plan and members", verbs: []action{
		{
			verb: "list", short: "List the organizations", example: "--sort pending_deliveries\n--search acme",
			fields: []field{{member: "search", usage: "only organizations whose name or external id begins with this text", value: someText},
				{member: "sort", usage: "the largest first", value: oneOf("subscriptions_in_trouble", "pending_deliveries", "last_event_at")}},
			show: list{columns: []string{"id", "name", "plan", "external_id", "subscriptions_in_trouble", "pending_deliveries", "last_event_at", "closed_at"}},
		},
		{verb: "get", short: "Show an organization"},
		{
			verb: "create", short: "Create an organization", example: "--name Acme --plan growth",
			fields: append(organizationFields(true), externalIDField),
		},
		{
			verb: "put", short: "Create the organization with an external id, or change it",
			long:    "The same command again changes nothing. So a script can repeat it. What you leave out stays; a new organization needs both.",
			example: "acme-17 --name Acme --plan growth\nacme-17 --name ACME",
			method:  "PUT", path: "{EXTERNAL-ID}/",
			fields: organizationFields(false),
		},
		{
			verb: "update", short: "Change an organization",
			long:    "A new plan applies from the next request.",
			example: "org_01h455vb4pex5vsknk084sn02q --plan business",
			fields:  append(organizationFields(false), externalIDField),
		},
		{verb: "delete", short: "Delete an empty organization", show: done("Deleted organization %s.")},
		{
			verb: "close", short: "Close an organization that leaves: end its credentials, and remove its data",
			long: "From the answer on, nothing is sent for the organization, and it takes nothing new. The server then removes its data.\n" +
				"Repeat the command with the id to see whether that is complete. Its users stay: first erase those who leave with it.",
			example: "org_01h455vb4pex5vsknk084sn02q --dry-run\norg_01h455vb4pex5vsknk084sn02q --yes",
			method:  "POST", path: "{}/close/", fields: dryRunField,
			question: "Close this organization for good? What ends: {api_keys} API keys, {access_tokens} access tokens, {members} memberships, " +
				"{subscriptions} subscriptions, {pending_deliveries} pending deliveries. Its events are deleted.",
		},
		{
			verb: "portal-link", short: "Create a link that signs a customer in to the console of an organization, once",
			long: "The customer sees only this organization, and can do what the role allows. Your own back end can create such links for a\n" +
				"button of your product.",
			example: "acme-17\nacme-17 --role member --expires-in 10m --return-url https://shop.example/settings --quiet",
			method:  "POST", path: "{}/portal-links/", fields: []field{
				{member: "role", usage: "what the customer can do: customer, owner, member, or your own role (default customer)", value: named},
				{member: "expires_in", usage: "how long the link is valid, from 1m to 24h (default 1h)", value: seconds},
				{member: "return_url", usage: "where the console leads back to", value: someText},
			},
			show: thing{secret: "url"},
		},
		{
			verb: "members", short: "List the members of an organization",
			method: "GET", path: "{}/members/",
			show: list{quiet: "user_id", columns: []string{"user_id", "kind", "email", "name", "role"}},
		},
		{
			verb: "add-member", short: "Add a user to an organization, or change the role of a member",
			example: "org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q --role owner",
			method:  "PUT", path: "{}/members/{USER}/",
			fields: []field{{member: "role", usage: "the role of the member: owner, customer, member, operator, or your own role", value: named, required: true}},
			show:   thing{quiet: "user_id"},
		},
		{
			verb: "remove-member", short: "Remove a user from an organization, and revoke the user's credentials there",
			example: "org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q",
			method:  "DELETE", path: "{}/members/{USER}/",
			question: "Remove this member? The user's API keys and access tokens in this organization end for good.", atTerminal: true,
			show: done("Changed organization %s: removed user %s."),
		},
	}}

var userNoun = noun{name: "users", item: "USER", example: "usr_01h455vb4pex5vsknk084sn02q",
	short: "Users: people and machines that are members of organizations", verbs: []action{
		{
			verb: "list", short: "List the users", example: "--all\n--search ada@example.com",
			fields: []field{{member: "search", usage: "only users whose name, e-mail address or external id begins with this text", value: someText}},
			show:   list{columns: []string{"id", "kind", "email", "name", "external_id", "is_active", "erased_at"}},
		},
		{verb: "get", short: "Show a user"},
		{
			verb: "create", short: "Create a user", example: "--email dev@acme.example --name Dev",
			fields: []field{
				{member: "email", usage: "the e-mail address of the user", value: someText, required: true},
				{member: "name", usage: "the name of the user (default: the e-mail address)", value: someText},
				externalIDField,
				{member: "is_active", usage: "whether the credentials of the user work (default true)", value: boolean},
			},
		},
		{
			verb: "put", short: "Create the user with an external id, or change it",
			long:    "The same command again changes nothing. So a script can repeat it. What you leave out stays; a new user needs a name.",
			example: "ada-9 --name Ada --email ada@acme.example",
			method:  "PUT", path: "{EXTERNAL-ID}/", fields: []field{
				{member: "name", usage: "the name of the user", value: someText},
				{member: "email", usage: "the e-mail address of the user; \"\" removes it", value: textOrNull},
			},
		},
		{
			verb: "update", short: "Change a user",
			long:    "If you make a user inactive, the server refuses the next request of that user.",
			example: "usr_01h455vb4pex5vsknk084sn02q --is-active=false",
			fields: []field{
				{member: "email", usage: "the e-mail address of the user", value: someText},
				{member: "name", usage: "the name of the user", value: someText},
				externalIDField,
				{member: "is_active", usage: "whether the credentials of the user work", value: boolean},
			},
		},
		{verb: "delete", short: "Delete a user who never had a membership or a credential", show: done("Deleted user %s.")},
		{
			verb: "erase", short: "Erase a person who leaves: remove the name, the e-mail address and the external id",
			long: "The user's credentials and memberships end. API keys that belong to the user end, too; those of service accounts go on.\n" +
				"The audit log keeps the id. The server then removes the copies of the data. Repeat the command with the id to see\n" +
				"whether that is complete.",
			example: "usr_01h455vb4pex5vsknk084sn02q --dry-run\nusr_01h455vb4pex5vsknk084sn02q --yes",
			method:  "POST", path: "{}/erase/", fields: dryRunField,
			question: "Erase this user for good? What ends: {api_keys} API keys, {access_tokens} access tokens, {memberships} memberships.",
		},
		{
			verb: "tokens", short: "List the access tokens of a user",
			long:   "To create an access token, use \"keyhook token create\".",
			method: "GET", path: "{}/access-tokens/",
			show: list{columns: []string{"id", "name", "status", "token_prefix", "organization_id", "created_at", "expires_at", "last_used_at"}},
		},
		{
			verb: "revoke-token", short: "Revoke an access token at once",
			example: "usr_01h455vb4pex5vsknk084sn02q tok_01h455vb4pex5vsknk084sn02q",
			method:  "DELETE", path: "{}/access-tokens/{TOKEN}/",
			show: done("Changed user %s: revoked access token %s."),
		},
	}}
