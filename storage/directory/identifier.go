package directory

import "github.com/keyhook/keyhook/storage/access"

// whereNamed ends a statement that looks for the organization or the user that a caller names, by its id or by its external id. No
// external id has the form of an id, so a text names at most one row. Every text of a caller is looked up with this function.
func whereNamed(sort access.IDType, text string) string {
	if sort.Valid(text) {
		return " WHERE public_id = ?"
	}
	return " WHERE external_id = ?"
}
