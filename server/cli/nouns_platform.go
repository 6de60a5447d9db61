package cli

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
)

var roleNoun = noun{name: "roles", item: "NAME", id: "name", short: "Roles: what members may do", verbs: []action{
	{verb: "list", short: "List the roles", show: list{columns: []string{"name", "built_in", "permissions"}}},
	{verb: "get", short: "Show a role", example: "owner"},
	{
		verb: "create", short: "Create a role", example: "--name clerk --permissions orders:read,orders:write",
		fields: []field{
			{member: "name", usage: "the name of the role", value: named, required: true},
			{member: "permissions", usage: "the permissions of the role", value: permissionList, required: true},
		},
	},
	{
		verb: "update", short: "Replace the permissions of a role at once", example: "clerk --permissions orders:read",
		fields: []field{{member: "permissions", usage: "all permissions of the role", value: permissionList}},
	},
	{verb: "delete", short: "Delete a role that no member has", example: "clerk", show: done("Deleted role %s.")},
}}

var permissionNoun = noun{name: "permissions", item: "KEY", id: "key",
	short: "Permissions: what a role or an API key may do", verbs: []action{
		{
			verb: "list", short: "List the permissions", example: "--all",
			show: list{columns: []string{"key", "built_in", "internal", "roles", "description"}},
		},
		{verb: "get", short: "Show a permission", example: "events:write"},
		{
			verb: "create", short: "Create a permission for your own product",
			long: "The roles operator, owner and customer get the permission at once, and member too if it ends with :read. So your customers have it.\n" +
				"With --internal, only operator gets it, and you can give it to roles of your own.",
			example: "--key orders:read --description \"Read orders\"\n--key refunds:write --internal",
			fields: []field{
				{member: "key", usage: "words with colons between them, such as orders:read", value: permission, required: true},
				{member: "description", usage: "what the permission allows", value: anyText},
				{member: "internal", usage: "whether the permission is for your own staff only", value: boolean},
			},
		},
		{
			verb: "update", short: "Change the description of a permission", example: "orders:read --description \"Read all orders\"",
			fields: []field{{member: "description", usage: "what the permission allows", value: anyText}},
		},
		{
			verb: "delete", short: "Delete a permission that no role and no API key has", example: "orders:read",
			show: done("Deleted permission %s."),
		},
	}}

// planFields are what a plan includes.
func planFields(isNew bool) []field {
	return []field{
		{member: "api_keys", usage: "whether the plan includes API keys", value: boolean},
		{member: "webhooks", usage: "whether the plan includes webhooks", value: boolean},
		{member: "api_rate_limit_per_minute", usage: "requests per minute of one API key, or unlimited", value: limit, required: isNew},
		{member: "max_subscriptions", usage: fmt.Sprint("subscriptions per organization; unlimited means ", access.MostSubscriptions), value: limit},
		{member: "max_api_keys", usage: fmt.Sprint("active API keys per organization; unlimited means ", access.MostAPIKeys), value: limit},
		{member: "max_stored_bytes_per_day", usage: "bytes that one organization may store per day (UTC), or unlimited", value: limit},
	}
}

var planNoun = noun{name: "plans", item: "NAME", id: "name",
	short: "Plans: the features and limits of organizations", verbs: []action{
		{
			verb: "list", short: "List the plans",
			show: list{columns: []string{"name", "api_keys", "webhooks", "api_rate_limit_per_minute", "max_subscriptions", "max_api_keys", "max_stored_bytes_per_day"}},
		},
		{verb: "get", short: "Show a plan", example: "growth"},
		{
			verb: "create", short: "Create a plan", example: "--name pro --api-keys --webhooks --api-rate-limit-per-minute 1200",
			fields: append([]field{{member: "name", usage: "the name of the plan", value: named, required: true}}, planFields(true)...),
		},
		{
			verb: "update", short: "Change a plan for all its organizations at once",
			example: "growth --api-rate-limit-per-minute 1200\nfree --webhooks=false",
			fields:  planFields(false),
		},
		{verb: "delete", short: "Delete a plan that no organization has", example: "pro", show: done("Deleted plan %s.")},
	}}
