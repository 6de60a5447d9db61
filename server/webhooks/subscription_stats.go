package webhooks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

const (
	maxSeries = 200 // subscriptions
	// maxSeriesMinutes is the most minutes of all series together: 200 subscriptions for 2 days, or 50 for 8. If each minute has
	// attempts, the read takes half a second.
	maxSeriesMinutes = maxSeries * 2 * 24 * 60
)

// sparklineLimits allow few points for each subscription, because many subscriptions share a response.
var sparklineLimits = pointLimits{100, 100}

type subscriptionStatsBody struct {
	Since exchange.Time            `json:"since"`
	Until exchange.Time            `json:"until"`
	Step  int64                    `json:"step"` // seconds
	Data  []subscriptionSeriesBody `json:"data"`
}

// subscriptionSeriesBody has one number for each step, oldest first.
type subscriptionSeriesBody struct {
	SubscriptionID string  `json:"subscription_id"`
	Succeeded      []int64 `json:"succeeded"`
	Failed         []int64 `json:"failed"`
}

// ReadSubscriptions responds with the series of several subscriptions, so that a list can show a chart in each row.
func (h Stats) ReadSubscriptions(x *exchange.Exchange) error {
	names := subscriptionNamesIn(&x.Query)
	p, err := readPeriod(x, sparklineLimits)
	if err != nil {
		return err
	}
	ids, err := h.resolveSubscriptions(x, names)
	if err != nil {
		return err
	}
	if minutes := int64(len(ids)) * (p.until - p.since); minutes > maxSeriesMinutes {
		x.Query.Refuse("since", fmt.Sprintf(
			"and until are too far apart for %d subscriptions: at most %d days are allowed", len(ids), maxSeriesMinutes/int64(len(ids))/(24*60)))
		return x.Query.Err()
	}
	found, err := h.store.SubscriptionSeries(x.Request.Context(), x.Organization(), ids, p.since, p.until, p.step)
	if err != nil {
		return err
	}
	body := subscriptionStatsBody{minuteAt(p.since), minuteAt(p.until), 60 * p.step, []subscriptionSeriesBody{}}
	for _, s := range found {
		body.Data = append(body.Data, subscriptionSeriesBody(s))
	}
	return x.OK(body)
}

// subscriptionNamesIn reads the ids and external ids of subscriptions.
func subscriptionNamesIn(q *form.Query) []string {
	text, _ := q.Value("subscription_id")
	names := strings.Split(text, ",")
	isWrong := func(name string) bool { return !access.SubscriptionID.MayName(name) }
	if len(names) > maxSeries || slices.ContainsFunc(names, isWrong) {
		q.Refuse("subscription_id", fmt.Sprintf("must be 1 to %d ids or external ids of subscriptions, separated by commas", maxSeries))
	}
	return names
}

// resolveSubscriptions returns the ids of subscriptions, without repetitions and without subscriptions that do not exist.
func (h Stats) resolveSubscriptions(x *exchange.Exchange, names []string) (ids []string, err error) {
	for _, name := range names {
		id, err := resolveSubscription(x, h.store, name)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return nil, err
		}
		if err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
