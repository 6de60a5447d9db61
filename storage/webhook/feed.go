package webhook

// FeedPosition is how far a reader of a feed has read. The zero value is no position.
type FeedPosition struct {
	Row int64 // of the last event that was looked at
	At  int64 // its time; 0 if it is not known
	// Expired is the last event that was deleted when the reader began, if that is later than Row: a wrong clock leaves a gap.
	Expired int64
}

// FeedRequest asks for events of a feed. Without After and Since, it begins at the creation of the subscription.
type FeedRequest struct {
	After        FeedPosition
	Since        int64 // time of the events
	Limit        int
	WithoutAudit bool // the reader may not read audit events
}

// FeedPage is a part of a feed, oldest event first. Next is how far it goes, also if it has no event. More says that the next read
// may find events at once.
type FeedPage struct {
	Target Target // signs the events
	Events []Job
	Next   FeedPosition
	More   bool
}
