package webhooks

import (
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

type explainedDeliveryBody struct {
	SubscriptionID string         `json:"subscription_id"`
	URLHost        string         `json:"url_host"`
	Verdict        string         `json:"verdict"`
	Detail         string         `json:"detail"`
	LastError      *string        `json:"last_error"`
	Hint           *string        `json:"hint"`
	Action         *string        `json:"action"`
	Advice         *string        `json:"advice"`
	NextAttemptAt  *exchange.Time `json:"next_attempt_at"`
	Attempts       int            `json:"attempts"`
}

// explanationBody says what happened to an event.
type explanationBody struct {
	exchange.List[explainedDeliveryBody]
	Notice *webhook.Notice `json:"notice"` // null unless the organization has no subscription
}

// ExplainEvent explains, for each subscription, whether an event arrived, and why not: newest subscription first. It changes nothing.
func (h Endpoints) ExplainEvent(x *exchange.Exchange) error {
	id, err := x.Path.ID("id", access.EventID, anEvent)
	if err != nil {
		return err
	}
	named := readSubscription(&x.Query)
	p, err := x.Page()
	if err != nil {
		return err
	}
	subscription, err := h.resolveSubscription(x, named)
	if err != nil {
		return err
	}
	ctx := x.Request.Context()
	event, err := h.Store.EventFacts(ctx, x.Organization(), id)
	if err != nil {
		return err
	}
	if !mayRead(x, event.Type) {
		return fault.Missing(anEvent)
	}
	page, err := h.Store.ReceiverPage(ctx, x.Organization(), event, webhook.ReceiverFilter{Before: p.After.Row, Limit: p.More(), ID: subscription})
	if err != nil {
		return err
	}
	p.Ended = form.Position{Row: page.Next}
	now, actFor := time.Now().UnixMilli(), ""
	if x.Principal.Organization.ID != x.Principal.Home.ID {
		actFor = x.Principal.Organization.ID
	}
	body := func(f webhook.ReceiverFacts) explainedDeliveryBody {
		return newExplainedDelivery(explain.Receiver{Event: event, ReceiverFacts: f, Now: now, ActFor: actFor})
	}
	var notice *webhook.Notice
	if p.After == (form.Position{}) && subscription == "" && len(page.Receivers) == 0 && page.Next == 0 {
		notice = new(webhook.NoSubscription)
	}
	list := exchange.NewList(p, page.Receivers, body, func(f webhook.ReceiverFacts) form.Position { return form.Position{Row: f.RowID} })
	return x.OK(explanationBody{list, notice})
}

func newExplainedDelivery(r explain.Receiver) explainedDeliveryBody {
	d := r.Explain()
	return explainedDeliveryBody{
		SubscriptionID: r.ID, URLHost: r.Host(), Verdict: string(d.Verdict), Detail: d.Detail,
		LastError: exchange.NullIfEmpty(d.LastError), Hint: exchange.NullIfEmpty(string(d.Hint)),
		Action: exchange.NullIfEmpty(string(d.Mend.Action)), Advice: exchange.NullIfEmpty(explain.Command(d.Mend)),
		NextAttemptAt: (*exchange.Time)(d.NextAttemptAt), Attempts: d.Attempts,
	}
}
