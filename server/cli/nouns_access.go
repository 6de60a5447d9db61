package cli

import "github.com/keyhook/keyhook/storage/access"

var (
	keyArgument          = argument{name: "ID", value: idOrExternalID(keyID)}
	organizationArgument = argument{name: "ORGANIZATION", value: idOrExternalID(organizationID)}
	userArgument         = argument{name: "USER", value: idOrExternalID(userID)}

	planName = nameOf("plan", pathPlans)
	roleName = nameOf("role", pathRoles)
)

// externalIDField is the id of a thing in the product that uses Keyhook.
var externalIDField = field{member: "external_id", usage: "id in your own product; \"\" removes the id", value: textOrNull}

// dryRunField asks what a request would end.
var dryRunField = []field{{member: memberDryRun, usage: "show the numbers, and change nothing", value: boolean}}

var keyNoun = noun{name: "keys", short: "API keys: credentials for the scripts and servers of customers", verbs: []action{
	{
		use: "list", short: "List the API keys of an organization", example: "list --status all\nlist --organization all --prefix svc_AbCdEf",
		method: "GET", path: pathKeys, columns: "id name status key_prefix scope created_at expires_at last_used_at", listsAll: true,
		query: []field{
			{member: "status", usage: "only keys with this status (default active, with --prefix all)", value: oneOf("active", "revoked", "expired", "all")},
			{member: "prefix", usage: "only keys with this key_prefix", value: keyPrefix},
		},
	},
	{
		use: "get ID", short: "Show an API key", example: "get key_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathKeys + "{}/", arguments: []argument{keyArgument}, nested: "creator",
	},
	{
		use: "create", short: "Create an API key and show it once",
		long: "The key gets those permissions of --scope that you have. Over the local socket, you have all permissions.\n\n" +
			"With --organization, a key in the organization of a customer belongs to the service account of the organization. So it\n" +
			"does not end when a person leaves. With --user, it belongs to that member.",
		example: "create --name backend --scope events:write\ncreate --name backend --scope events:write --organization acme-17\ncreate --name acme-1 --scope orders:read --metadata '{\"customer\": 17}'\ncreate --name ci --scope \"events:read events:write\" --expires-in 30d --quiet",
		method:  "POST", path: pathKeys, secret: "key", nested: "creator",
		body: append([]field{
			{member: "name", usage: "the name of the key", value: someText, required: true},
			{member: "scope", usage: "the permissions of the key", value: scope, required: true},
			{member: "external_id", usage: "id in your own product; a second key with it is refused, so a script can repeat the command", value: externalID},
			{member: "metadata", usage: "a JSON object of your own, which reads and verify return; it never changes", value: jsonObject},
			{member: "user_id", flag: "user", usage: "the member to whom the key belongs: an id or an external id", value: idOrExternalID(userID)},
		}, expiryFields...),
	},
	{
		use: "rotate ID", short: "Replace an API key with a new key of the same scope, and show the new key once",
		example: "rotate key_01h455vb4pex5vsknk084sn02q --grace 1h",
		method:  "POST", path: pathKeys + "{}/rotate/", arguments: []argument{keyArgument}, secret: "key", nested: "creator",
		body: []field{{member: "grace_seconds", flag: "grace", usage: "how long the old key still works, up to 7d (default 0s)", value: durationUpTo(maxOverlap)}},
	},
	{
		use: "delete ID", short: "Revoke an API key at once", example: "delete key_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathKeys + "{}/", arguments: []argument{keyArgument}, done: "Revoked API key %s.",
	},
	{
		use: "verify KEY", short: "Check whether an API key is valid, and whether it has a permission",
		long: "If KEY is -, the command reads the key from the standard input. This is safer, because ps shows arguments. The check\n" +
			"counts as one request of the key. The exit code is 1 if the key is refused.",
		example: "verify - <key.txt\nverify svc_… --permission events:write",
		method:  "POST", path: "/api/v1/auth/verify/", arguments: []argument{{name: "KEY", member: "key", value: apiKey}},
		body: []field{{member: "permission", usage: "the permission that the key must have", value: permission}},
		id:   "code", condition: "valid=true", failure: "the key is refused",
	},
	{
		use: "explain KEY|ID|PREFIX METHOD PATH", short: "Explain why a request with an API key is allowed or refused",
		long: "The command shows the result of each check. It does not count as a request of the key. If KEY is -, the command reads\n" +
			"the key from the standard input. PREFIX is the key_prefix that lists show. PATH is a path of Keyhook. With --permission, PATH is a path of your own API. The exit\n" +
			"code is 1 if the request would be refused.",
		example: "explain key_01h455vb4pex5vsknk084sn02q POST /api/v1/events/\nexplain key_01h455vb4pex5vsknk084sn02q GET /orders --permission orders:read",
		method:  "POST", path: "/api/v1/auth/explain/", id: "code", table: "checks: check verdict value detail",
		condition: "allowed=true", failure: "the request would be refused",
		arguments: []argument{{name: "KEY|ID|PREFIX", member: "key", value: apiKeyOrID}, {name: "METHOD", member: "method", value: method}, {name: "PATH", member: "path", value: anyPath}},
		body:      []field{{member: "permission", usage: "permission that your own API requires for PATH", value: permission}},
	},
}}

var organizationNoun = noun{name: "organizations", short: "Organizations: your customers, each with a plan and members", verbs: []action{
	{
		use: "list", short: "List the organizations", example: "list --all\nlist --search acme",
		method: "GET", path: pathOrganizations, columns: "id name plan external_id closed_at",
		query: []field{{member: "search", usage: "only organizations whose name or external id begins with this text", value: someText}},
	},
	{
		use: "get ORGANIZATION", short: "Show an organization", example: "get org_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathOrganizations + "{}/", arguments: []argument{organizationArgument},
	},
	{
		use: "create", short: "Create an organization", example: "create --name Acme --plan growth",
		method: "POST", path: pathOrganizations, body: []field{
			{member: "name", usage: "the name of the organization", value: someText, required: true},
			{member: "plan", usage: "the plan of the organization", value: planName, required: true},
			externalIDField,
		},
	},
	{
		use: "put EXTERNAL-ID", short: "Create the organization with an external id, or change it",
		long:    "The same command again changes nothing. So a script can repeat it. What you leave out stays; a new organization needs both.",
		example: "put acme-17 --name Acme --plan growth\nput acme-17 --name ACME",
		method:  "PUT", path: pathOrganizations + "{}/", arguments: []argument{{name: "EXTERNAL-ID", value: idOrExternalID(organizationID)}}, body: []field{
			{member: "name", usage: "the name of the organization", value: someText},
			{member: "plan", usage: "the plan of the organization", value: planName},
		},
	},
	{
		use: "update ORGANIZATION", short: "Change an organization", long: "A new plan applies from the next request.",
		example: "update org_01h455vb4pex5vsknk084sn02q --plan business",
		method:  "PATCH", path: pathOrganizations + "{}/", arguments: []argument{organizationArgument}, body: []field{
			{member: "name", usage: "the name of the organization", value: someText},
			{member: "plan", usage: "the plan of the organization", value: planName},
			externalIDField,
		},
	},
	{
		use: "delete ORGANIZATION", short: "Delete an empty organization", example: "delete org_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathOrganizations + "{}/", arguments: []argument{organizationArgument}, done: "Deleted organization %s.",
	},
	{
		use: "close ORGANIZATION", short: "Close an organization that leaves: end its credentials, and remove its data",
		long: "From the answer on, nothing is sent for the organization, and it takes nothing new. The server then removes its data.\n" +
			"Repeat the command with the id to see whether that is complete. Its users stay: first erase those who leave with it.",
		example: "close org_01h455vb4pex5vsknk084sn02q --dry-run\nclose org_01h455vb4pex5vsknk084sn02q --yes",
		method:  "POST", path: pathOrganizations + "{}/close/", arguments: []argument{organizationArgument},
		body:    dryRunField,
		preview: pathOrganizations + "{}/close/",
		question: "Close this organization for good? What ends: {api_keys} API keys, {access_tokens} access tokens, {members} memberships, " +
			"{subscriptions} subscriptions, {pending_deliveries} pending deliveries. Its events are deleted.",
	},
	{
		use: "portal-link ORGANIZATION", short: "Create a link that signs a customer in to the console of an organization, once",
		long: "The customer sees only this organization, and can do what the role allows. Your own back end can create such links for a\n" +
			"button of your product.",
		example: "portal-link acme-17\nportal-link acme-17 --role member --expires-in 10m --return-url https://shop.example/settings --quiet",
		method:  "POST", path: pathOrganizations + "{}/portal-links/", arguments: []argument{organizationArgument}, id: "url", note: noteLink,
		body: []field{
			{member: "role", usage: "what the customer can do: owner, member, or your own role (default owner)", value: roleName},
			{member: "expires_in", usage: "how long the link is valid, from 1m to 24h (default 1h)", value: durationBetween(access.MinPortalLife, access.MaxPortalLife)},
			{member: "return_url", usage: "where the console leads back to", value: someText},
		},
	},
	{
		use: "members ORGANIZATION", short: "List the members of an organization", example: "members org_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathOrganizations + "{}/members/", arguments: []argument{organizationArgument}, columns: "user_id kind email name role", id: "user_id",
	},
	{
		use: "add-member ORGANIZATION USER", short: "Add a user to an organization, or change the role of a member",
		example: "add-member org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q --role owner",
		method:  "PUT", path: pathOrganizations + "{}/members/{}/", arguments: []argument{organizationArgument, userArgument}, id: "user_id",
		body: []field{{member: "role", usage: "the role of the member: owner, member, operator, or your own role", value: roleName, required: true}},
	},
	{
		use: "remove-member ORGANIZATION USER", short: "Remove a user from an organization, and revoke the user's credentials there",
		example: "remove-member org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q",
		method:  "DELETE", path: pathOrganizations + "{}/members/{}/", arguments: []argument{organizationArgument, userArgument},
		done:     "Changed organization %s: removed user %s.",
		question: "Remove this member? The user's API keys and access tokens in this organization end for good.", atTerminal: true,
	},
}}

var userNoun = noun{name: "users", short: "Users: people and machines that are members of organizations", verbs: []action{
	{
		use: "list", short: "List the users", example: "list --all\nlist --search ada@example.com",
		method: "GET", path: pathUsers, columns: "id kind email name external_id is_active erased_at",
		query: []field{{member: "search", usage: "only users whose name, e-mail address or external id begins with this text", value: someText}},
	},
	{
		use: "get USER", short: "Show a user", example: "get usr_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathUsers + "{}/", arguments: []argument{userArgument},
	},
	{
		use: "create", short: "Create a user", example: "create --email dev@acme.example --name Dev",
		method: "POST", path: pathUsers, body: []field{
			{member: "email", usage: "the e-mail address of the user", value: someText, required: true},
			{member: "name", usage: "the name of the user (default: the e-mail address)", value: someText},
			externalIDField,
			{member: "is_active", usage: "whether the credentials of the user work (default true)", value: boolean},
		},
	},
	{
		use: "put EXTERNAL-ID", short: "Create the user with an external id, or change it",
		long:    "The same command again changes nothing. So a script can repeat it. What you leave out stays; a new user needs a name.",
		example: "put ada-9 --name Ada --email ada@acme.example",
		method:  "PUT", path: pathUsers + "{}/", arguments: []argument{{name: "EXTERNAL-ID", value: idOrExternalID(userID)}}, body: []field{
			{member: "name", usage: "the name of the user", value: someText},
			{member: "email", usage: "the e-mail address of the user; \"\" removes it", value: textOrNull},
		},
	},
	{
		use: "update USER", short: "Change a user", long: "If you make a user inactive, the server refuses the next request of that user.",
		example: "update usr_01h455vb4pex5vsknk084sn02q --is-active=false",
		method:  "PATCH", path: pathUsers + "{}/", arguments: []argument{userArgument}, body: []field{
			{member: "email", usage: "the e-mail address of the user", value: someText},
			{member: "name", usage: "the name of the user", value: someText},
			externalIDField,
			{member: "is_active", usage: "whether the credentials of the user work", value: boolean},
		},
	},
	{
		use: "delete USER", short: "Delete a user who never had a membership or a credential", example: "delete usr_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathUsers + "{}/", arguments: []argument{userArgument}, done: "Deleted user %s.",
	},
	{
		use: "erase USER", short: "Erase a person who leaves: remove the name, the e-mail address and the external id",
		long: "The user's credentials and memberships end. API keys that belong to the user end, too; those of service accounts go on.\n" +
			"The audit log keeps the id. The server then removes the copies of the data. Repeat the command with the id to see\n" +
			"whether that is complete.",
		example: "erase usr_01h455vb4pex5vsknk084sn02q --dry-run\nerase usr_01h455vb4pex5vsknk084sn02q --yes",
		method:  "POST", path: pathUsers + "{}/erase/", arguments: []argument{userArgument},
		body:     dryRunField,
		preview:  pathUsers + "{}/erase/",
		question: "Erase this user for good? What ends: {api_keys} API keys, {access_tokens} access tokens, {memberships} memberships.",
	},
	{
		use: "tokens USER", short: "List the access tokens of a user", long: "To create an access token, use \"keyhook token create\".",
		example: "tokens usr_01h455vb4pex5vsknk084sn02q",
		method:  "GET", path: pathUsers + "{}/access-tokens/", arguments: []argument{userArgument},
		columns: "id name status token_prefix organization_id created_at expires_at last_used_at",
	},
	{
		use: "revoke-token USER TOKEN", short: "Revoke an access token at once",
		example: "revoke-token usr_01h455vb4pex5vsknk084sn02q tok_01h455vb4pex5vsknk084sn02q",
		method:  "DELETE", path: pathUsers + "{}/access-tokens/{}/",
		arguments: []argument{userArgument, {name: "TOKEN", value: idOf(tokenID)}}, done: "Changed user %s: revoked access token %s.",
	},
}}

// noteLink says what to do with a portal link.
func noteLink(found object, _ []string, _ string) string {
	return "Open the url in a browser, or send it to the customer. It works once, until " + found.text("expires_at") + ". It is not shown again."
}
