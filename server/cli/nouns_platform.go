package cli

var aRole, aPermission, aPlan = []argument{{name: "NAME", kind: roleName}}, []argument{{name: "KEY", kind: permission}}, []argument{{name: "NAME", kind: planName}}

var roleNoun = noun{name: "roles", short: "Roles: what members may do", actions: []action{
	{
		use: "list", short: "List the roles", example: "list",
		method: "GET", path: pathRoles, list: "name built_in permissions", id: "name",
	},
	{
		use: "get NAME", short: "Show a role", example: "get owner",
		method: "GET", path: pathRoles + "{}/", arguments: aRole, id: "name",
	},
	{
		use: "create", short: "Create a role", example: "create --name clerk --permissions orders:read,orders:write",
		method: "POST", path: pathRoles, id: "name", body: []field{
			{member: "name", usage: "what to call it", kind: roleName, required: true},
			{member: "permissions", usage: "what it grants", kind: permissionItems, required: true},
		},
	},
	{
		use: "update NAME", short: "Change what a role grants, from the next request on", example: "update clerk --permissions orders:read",
		method: "PATCH", path: pathRoles + "{}/", arguments: aRole, id: "name",
		body: []field{{member: "permissions", usage: "what it grants, in the place of what it granted", kind: permissionItems}},
	},
	{
		use: "delete NAME", short: "Remove a role that no member has", example: "delete clerk",
		method: "DELETE", path: pathRoles + "{}/", arguments: aRole, done: "Role %s is removed.",
	},
}}

var permissionItems = kind{name: "permissions", several: true, source: pathPermissions, read: items.read}

var permissionNoun = noun{name: "permissions", short: "Permissions: the words that roles and keys are made of", actions: []action{
	{
		use: "list", short: "List the permissions", example: "list --all",
		method: "GET", path: pathPermissions, list: "key built_in description", id: "key",
	},
	{
		use: "get KEY", short: "Show a permission", example: "get events:write",
		method: "GET", path: pathPermissions + "{}/", arguments: aPermission, id: "key",
	},
	{
		use: "create", short: "Create a permission of your own product", example: "create --key orders:read --description \"Read orders\"",
		method: "POST", path: pathPermissions, id: "key", body: []field{
			{member: "key", usage: "its words, with colons between them", kind: permission, required: true},
			{member: "description", usage: "what it allows", kind: prose},
		},
	},
	{
		use: "update KEY", short: "Describe a permission in other words", example: "update orders:read --description \"Read all orders\"",
		method: "PATCH", path: pathPermissions + "{}/", arguments: aPermission, id: "key",
		body: []field{{member: "description", usage: "what it allows", kind: prose}},
	},
	{
		use: "delete KEY", short: "Remove a permission that no role or key has", example: "delete orders:read",
		method: "DELETE", path: pathPermissions + "{}/", arguments: aPermission, done: "Permission %s is removed.",
	},
}}

// planFields are what a plan includes.
func planFields(limitRequired bool) []field {
	return []field{
		{member: "api_keys", usage: "whether it includes API keys", kind: yes},
		{member: "webhooks", usage: "whether it includes webhooks", kind: yes},
		{member: "api_rate_limit_per_minute", usage: "requests that each key may make in a minute, or unlimited",
			kind: unlimitable(0, 1_000_000_000), required: limitRequired},
		{member: "max_subscriptions", usage: "webhook subscriptions that an organization may have, or unlimited, which means 5000",
			kind: unlimitable(0, 5_000)},
		{member: "max_api_keys", usage: "live API keys that an organization may have, or unlimited, which means 10000",
			kind: unlimitable(0, 10_000)},
		{member: "max_stored_bytes_per_day", usage: "bytes that an organization may add to the database in a UTC day, or unlimited",
			kind: unlimitable(0, 1_000_000_000_000_000)},
	}
}

var planNoun = noun{name: "plans", short: "Plans: what organizations have bought", actions: []action{
	{
		use: "list", short: "List the plans", example: "list",
		method: "GET", path: pathPlans, list: "name api_keys webhooks api_rate_limit_per_minute max_subscriptions max_api_keys max_stored_bytes_per_day", id: "name",
	},
	{
		use: "get NAME", short: "Show a plan", example: "get growth",
		method: "GET", path: pathPlans + "{}/", arguments: aPlan, id: "name",
	},
	{
		use: "create", short: "Create a plan", example: "create --name pro --api-keys --webhooks --api-rate-limit-per-minute 1200",
		method: "POST", path: pathPlans, id: "name",
		body: append([]field{{member: "name", usage: "what to call it", kind: planName, required: true}}, planFields(true)...),
	},
	{
		use: "update NAME", short: "Change a plan, for all that are on it, from the next request on",
		example: "update growth --api-rate-limit-per-minute 1200\nupdate free --webhooks=false",
		method:  "PATCH", path: pathPlans + "{}/", arguments: aPlan, id: "name", body: planFields(false),
	},
	{
		use: "delete NAME", short: "Remove a plan that no organization is on", example: "delete pro",
		method: "DELETE", path: pathPlans + "{}/", arguments: aPlan, done: "Plan %s is removed.",
	},
}}
