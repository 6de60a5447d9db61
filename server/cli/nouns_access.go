package cli

var (
	anOrganizationID = argument{name: "ORGANIZATION", kind: idOf(organizationIDs)}
	aUserID          = argument{name: "USER", kind: idOf(userIDs)}
	planName         = named("plan", pathPlans)
	roleName         = named("role", pathRoles)
)

// externalID is the host product's own id of a thing.
var externalID = field{member: "external_id", usage: "its id in your own system; empty takes it away", kind: clearable}

var organizationNoun = noun{name: "organizations", short: "Organizations: each customer is one, on a plan, with members", actions: []action{
	{
		use: "list", short: "List the organizations", example: "list --all",
		method: "GET", path: pathOrganizations, list: "id name plan external_id",
	},
	{
		use: "get ORGANIZATION", short: "Show an organization", example: "get org_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathOrganizations + "{}/", arguments: []argument{anOrganizationID},
	},
	{
		use: "create", short: "Create an organization", example: "create --name Acme --plan growth",
		method: "POST", path: pathOrganizations, body: []field{
			{member: "name", usage: "what to call it", kind: line, required: true},
			{member: "plan", usage: "the plan it is on", kind: planName, required: true},
			externalID,
		},
	},
	{
		use: "update ORGANIZATION", short: "Change an organization; another plan holds from the next request on",
		example: "update org_01h455vb4pex5vsknk084sn02q --plan business",
		method:  "PATCH", path: pathOrganizations + "{}/", arguments: []argument{anOrganizationID}, body: []field{
			{member: "name", usage: "what to call it", kind: line},
			{member: "plan", usage: "the plan it is on", kind: planName},
			externalID,
		},
	},
	{
		use: "delete ORGANIZATION", short: "Remove an organization of which nothing is left", example: "delete org_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathOrganizations + "{}/", arguments: []argument{anOrganizationID}, done: "Organization %s is removed.",
	},
	{
		use: "members ORGANIZATION", short: "List the members of an organization", example: "members org_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathOrganizations + "{}/members/", arguments: []argument{anOrganizationID}, list: "user_id email name role", id: "user_id",
	},
	{
		use: "add-member ORGANIZATION USER", short: "Make a user a member of an organization, or give one another role",
		example: "add-member org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q --role owner",
		method:  "PUT", path: pathOrganizations + "{}/members/{}/", arguments: []argument{anOrganizationID, aUserID}, id: "user_id",
		body: []field{{member: "role", usage: "what the user may do there: owner, member, operator, or a role of your own", kind: roleName, required: true}},
	},
	{
		use: "remove-member ORGANIZATION USER", short: "Take a user out of an organization; the credentials it has there end",
		example: "remove-member org_01h455vb4pex5vsknk084sn02q usr_01h455vb4pex5vsknk084sn02q",
		method:  "DELETE", path: pathOrganizations + "{}/members/{}/", arguments: []argument{anOrganizationID, aUserID},
		done: "Organization %s has a member less: %s.",
	},
}}

var userNoun = noun{name: "users", short: "Users: people and machines that belong to organizations", actions: []action{
	{
		use: "list", short: "List the users", example: "list --all",
		method: "GET", path: pathUsers, list: "id email name external_id is_active",
	},
	{
		use: "get USER", short: "Show a user", example: "get usr_01h455vb4pex5vsknk084sn02q",
		method: "GET", path: pathUsers + "{}/", arguments: []argument{aUserID},
	},
	{
		use: "create", short: "Create a user", example: "create --email dev@acme.example --name Dev",
		method: "POST", path: pathUsers, body: []field{
			{member: "email", usage: "its e-mail address", kind: line, required: true},
			{member: "name", usage: "what to call it (default: the address)", kind: line},
			externalID,
			{member: "is_active", usage: "whether it may come in (default true)", kind: yes},
		},
	},
	{
		use: "update USER", short: "Change a user; one that is not active is refused from the next request on",
		example: "update usr_01h455vb4pex5vsknk084sn02q --is-active=false",
		method:  "PATCH", path: pathUsers + "{}/", arguments: []argument{aUserID}, body: []field{
			{member: "email", usage: "its e-mail address", kind: line},
			{member: "name", usage: "what to call it", kind: line},
			externalID,
			{member: "is_active", usage: "whether it may come in", kind: yes},
		},
	},
	{
		use: "delete USER", short: "Remove a user who has, and had, nothing", example: "delete usr_01h455vb4pex5vsknk084sn02q",
		method: "DELETE", path: pathUsers + "{}/", arguments: []argument{aUserID}, done: "User %s is removed.",
	},
	{
		use: "tokens USER", short: "List the access tokens of a user; \"keyhook token create\" makes one",
		example: "tokens usr_01h455vb4pex5vsknk084sn02q",
		method:  "GET", path: pathUsers + "{}/access-tokens/", arguments: []argument{aUserID},
		list: "id name status token_prefix organization_id created_at expires_at last_used_at",
	},
	{
		use: "revoke-token USER TOKEN", short: "Revoke an access token, from the next request on",
		example: "revoke-token usr_01h455vb4pex5vsknk084sn02q tok_01h455vb4pex5vsknk084sn02q",
		method:  "DELETE", path: pathUsers + "{}/access-tokens/{}/",
		arguments: []argument{aUserID, {name: "TOKEN", kind: idOf(tokenIDs)}}, done: "User %s has an access token less: %s is revoked.",
	},
}}
