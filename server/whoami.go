package server

// whoamiBody tells the holder of a credential what it stands for.
type whoamiBody struct {
	User         whoamiUser         `json:"user"`
	Organization whoamiOrganization `json:"organization"`
	Plan         planBody           `json:"plan"` // of the credential's own organization: it governs the credential
	Permissions  []string           `json:"permissions"`
	Key          *whoamiKey         `json:"key"`
}

type whoamiUser struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Name  string `json:"name"`
}

type whoamiOrganization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type whoamiKey struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
}

func whoami(c *call) error {
	p := c.principal
	body := whoamiBody{
		User:         whoamiUser{p.User.ID, p.User.Email, p.User.Name},
		Organization: whoamiOrganization{p.Organization.ID, p.Organization.Name},
		Plan:         newPlanBody(p.Plan),
		Permissions:  p.Permissions.Keys(),
	}
	if p.Key != nil {
		body.Key = &whoamiKey{p.Key.ID, p.Key.Name, p.Key.Scope.String()}
	}
	return c.ok(body)
}
