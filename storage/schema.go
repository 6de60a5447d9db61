package storage

import "github.com/keyhook/keyhook/storage/sqlite"

// schemaVersion is the version of schema.sql (PRAGMA user_version): one more than there are upgrades.
const schemaVersion = 1

// schemaUpgrades are those of this version: the first takes schema 1 to schema 2, and so on. The table instance stays as it
// is, for it is read before an upgrade.
var schemaUpgrades = [schemaVersion - 1]sqlite.Step{}
