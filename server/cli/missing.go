package cli

import (
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/fault"
)

// inOrganization are the lists that each organization has for itself. A command finds only the items of one organization.
var inOrganization = []string{pathKeys, pathSubscriptions, pathEvents, pathAudit}

// ofServer are the lists that all organizations share, with the nouns that show them.
var ofServer = map[string]string{
	pathOrganizations: "organizations", pathUsers: "users", pathRoles: "roles", pathPermissions: "permissions", pathPlans: "plans",
}

// adviseIfMissing adds to the refusal of an id where to look for the right id.
func (a action) adviseIfMissing(err error, args []string) error {
	if !client.IsNotFound(err) {
		return err
	}
	for _, path := range inOrganization {
		switch {
		case !strings.HasPrefix(a.path, path):
		case a.organization == "":
			return fault.AdviseMissing(err, "if another organization has it, name that organization with --%s", client.FlagOrganization)
		case len(args) == 0: // only the organization can be missing
			return fault.AdviseMissing(err, `choose one from "keyhook organizations list"`)
		default:
			return fault.AdviseMissing(err, "check the id, and --%s", client.FlagOrganization)
		}
	}
	for path, noun := range ofServer {
		if a.organization == "" && strings.HasPrefix(a.path, path) && strings.Count(a.path, "{}") == 1 {
			return fault.AdviseMissing(err, `choose one from "keyhook %s list"`, noun)
		}
	}
	return err
}
