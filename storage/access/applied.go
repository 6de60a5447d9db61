package access

// The kinds of objects that `keyhook apply` creates. They are also the types of the targets of audit events, but for members.
const (
	KindPlan         = "plan"
	KindPermission   = "permission"
	KindRole         = "role"
	KindEventType    = "event_type"
	KindOrganization = "organization"
	KindUser         = "user"
	KindMember       = "member"
	KindSubscription = "subscription"
)

// IsAppliedKind reports whether `keyhook apply` creates objects of a kind.
func IsAppliedKind(kind string) bool {
	switch kind {
	case KindPlan, KindPermission, KindRole, KindEventType, KindOrganization, KindUser, KindMember, KindSubscription:
		return true
	}
	return false
}

// Applied is an object that `keyhook apply` has created, and that nobody has deleted since.
type Applied struct {
	RowID int64  `db:"id"`
	Kind  string `db:"kind"`
	Key   string `db:"key"` // name, key, type or public id; see MemberKey
}

// MemberKey returns the key of a member, from the ids of organization and user.
func MemberKey(organization, user string) string { return organization + "/" + user }
