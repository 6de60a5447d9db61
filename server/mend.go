package server

// codeClockDoubted names the warning about a clock that has jumped.
const codeClockDoubted = "clock_doubted"

// mends is the one table from the code of a fault or a warning of the store to what its reader can do about it, in terms of
// paths, headers, fields and commands. The store knows none of these. The mend follows the message of the fault.
var mends = map[string]string{
	"subject_mismatch":      "An operator can change the user's external_id with PATCH /api/v1/users/{id}/.",
	"organization_required": "Name one with the header X-Organization-Id.",
	"not_a_member":          "An operator can add the user with PUT /api/v1/organizations/{id}/members/{user_id}/.",
	"overlap_in_progress": "Rotate again after that, or end the overlap now with \"force\": true " +
		"(keyhook subscriptions rotate-secret --force).",
	codeClockDoubted: "To start deleting at once, run: keyhook clock accept",
}

// withMend returns the message of a fault with the mend for its code, where the table has one.
func withMend(code, message string) string {
	if mend := mends[code]; mend != "" {
		return message + " " + mend
	}
	return message
}
