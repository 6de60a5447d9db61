package server

import (
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/platform"
)

type whoamiBody struct {
	User         whoamiUser                `json:"user"`
	Organization platform.OrganizationName `json:"organization"`
	Plan         platform.PlanBody         `json:"plan"` // of that organization; a credential has the limits of its own organization
	Permissions  []string                  `json:"permissions"`
	Key          *whoamiKey                `json:"key"`
}

type whoamiUser struct {
	ID    string  `json:"id"`
	Email *string `json:"email"`
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
}

type whoamiKey struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Scope      string  `json:"scope"`
	ExternalID *string `json:"external_id"`
}

func (h *handlers) readCaller(x *exchange.Exchange) error {
	body, err := h.callerBody(x)
	if err != nil {
		return err
	}
	return x.OK(body)
}

func (h *handlers) callerBody(x *exchange.Exchange) (whoamiBody, error) {
	p := x.Principal
	plan := p.Plan // of its own organization
	if p.Organization.ID != p.Home.ID {
		var err error
		if plan, err = h.options.Store.Plan(x.Request.Context(), p.Organization.Plan); err != nil {
			return whoamiBody{}, err
		}
	}
	body := whoamiBody{
		User:         whoamiUser{p.User.ID, exchange.NullIfEmpty(p.User.Email), p.User.Name, platform.UserKind(p.User.IsService())},
		Organization: platform.OrganizationName{ID: p.Organization.ID, Name: p.Organization.Name, ExternalID: p.Organization.ExternalID},
		Plan:         platform.NewPlanBody(plan),
		Permissions:  p.Permissions.Keys(),
	}
	if p.Key != nil {
		body.Key = &whoamiKey{p.Key.ID, p.Key.Name, p.Key.Scope.String(), p.Key.ExternalID}
	}
	return body, nil
}
