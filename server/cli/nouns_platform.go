package cli

var (
	roleArgument       = argument{name: "NAME", value: roleName}
	permissionArgument = argument{name: "KEY", value: permission}
	planArgument       = argument{name: "NAME", value: planName}
)

var roleNoun = noun{name: "roles", short: "Roles: what members may do", verbs: []action{
	{
		use: "list", short: "List the roles", example: "list",
		method: "GET", path: pathRoles, columns: "name built_in permissions", id: "name",
	},
	{
		use: "get NAME", short: "Show a role", example: "get owner",
		method: "GET", path: pathRoles + "{}/", arguments: []argument{roleArgument}, id: "name",
	},
	{
		use: "create", short: "Create a role", example: "create --name clerk --permissions orders:read,orders:write",
		method: "POST", path: pathRoles, id: "name", body: []field{
			{member: "name", usage: "the name of the role", value: roleName, required: true},
			{member: "permissions", usage: "the permissions of the role", value: permissionList, required: true},
		},
	},
	{
		use: "update NAME", short: "Replace the permissions of a role at once", example: "update clerk --permissions orders:read",
		method: "PATCH", path: pathRoles + "{}/", arguments: []argument{roleArgument}, id: "name",
		body: []field{{member: "permissions", usage: "all permissions of the role", value: permissionList}},
	},
	{
		use: "delete NAME", short: "Delete a role that no member has", example: "delete clerk",
		method: "DELETE", path: pathRoles + "{}/", arguments: []argument{roleArgument}, done: "Deleted role %s.",
	},
}}

var permissionNoun = noun{name: "permissions", short: "Permissions: what a role or an API key may do", verbs: []action{
	{
		use: "list", short: "List the permissions", example: "list --all",
		method: "GET", path: pathPermissions, columns: "key built_in internal roles description", id: "key",
	},
	{
		use: "get KEY", short: "Show a permission", example: "get events:write",
		method: "GET", path: pathPermissions + "{}/", arguments: []argument{permissionArgument}, id: "key",
	},
	{
		use: "create", short: "Create a permission for your own product",
		long: "The roles operator and owner get the permission at once, and member too if it ends with :read. So your customers have it.\n" +
			"With --internal, only operator gets it, and you can give it to roles of your own.",
		example: "create --key orders:read --description \"Read orders\"\ncreate --key refunds:write --internal",
		method:  "POST", path: pathPermissions, id: "key", body: []field{
			{member: "key", usage: "words with colons between them, such as orders:read", value: permission, required: true},
			{member: "description", usage: "what the permission allows", value: anyText},
			{member: "internal", usage: "whether the permission is for your own staff only", value: boolean},
		},
	},
	{
		use: "update KEY", short: "Change the description of a permission", example: "update orders:read --description \"Read all orders\"",
		method: "PATCH", path: pathPermissions + "{}/", arguments: []argument{permissionArgument}, id: "key",
		body: []field{{member: "description", usage: "what the permission allows", value: anyText}},
	},
	{
		use: "delete KEY", short: "Delete a permission that no role and no API key has", example: "delete orders:read",
		method: "DELETE", path: pathPermissions + "{}/", arguments: []argument{permissionArgument}, done: "Deleted permission %s.",
	},
}}

// planFields are what a plan includes.
func planFields(isNew bool) []field {
	return []field{
		{member: "api_keys", usage: "whether the plan includes API keys", value: boolean},
		{member: "webhooks", usage: "whether the plan includes webhooks", value: boolean},
		{member: "api_rate_limit_per_minute", usage: "requests per minute of one API key, or unlimited", value: limit(0, 1_000_000_000), required: isNew},
		{member: "max_subscriptions", usage: "subscriptions per organization; unlimited means 5000", value: limit(0, 5_000)},
		{member: "max_api_keys", usage: "active API keys per organization; unlimited means 10000", value: limit(0, 10_000)},
		{member: "max_stored_bytes_per_day", usage: "bytes that one organization may store per day (UTC), or unlimited", value: limit(0, 1_000_000_000_000_000)},
	}
}

var planNoun = noun{name: "plans", short: "Plans: the features and limits of organizations", verbs: []action{
	{
		use: "list", short: "List the plans", example: "list",
		method: "GET", path: pathPlans, columns: "name api_keys webhooks api_rate_limit_per_minute max_subscriptions max_api_keys max_stored_bytes_per_day", id: "name",
	},
	{
		use: "get NAME", short: "Show a plan", example: "get growth",
		method: "GET", path: pathPlans + "{}/", arguments: []argument{planArgument}, id: "name",
	},
	{
		use: "create", short: "Create a plan", example: "create --name pro --api-keys --webhooks --api-rate-limit-per-minute 1200",
		method: "POST", path: pathPlans, id: "name",
		body: append([]field{{member: "name", usage: "the name of the plan", value: planName, required: true}}, planFields(true)...),
	},
	{
		use: "update NAME", short: "Change a plan for all its organizations at once",
		example: "update growth --api-rate-limit-per-minute 1200\nupdate free --webhooks=false",
		method:  "PATCH", path: pathPlans + "{}/", arguments: []argument{planArgument}, id: "name", body: planFields(false),
	},
	{
		use: "delete NAME", short: "Delete a plan that no organization has", example: "delete pro",
		method: "DELETE", path: pathPlans + "{}/", arguments: []argument{planArgument}, done: "Deleted plan %s.",
	},
}}
