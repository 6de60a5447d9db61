// Package audit owns the audit log: how a line is written, the form in which it is published, the same without personal data, the list of
// what apply has created, which follows from the log, and the rules about which subscriptions receive audit events. It publishes nothing.
package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Data is the data of the event that publishes an audit event.
type Data struct {
	Actor   Actor           `json:"actor"`
	Target  Target          `json:"target"`
	Details json.RawMessage `json:"details"`
}

// Actor is the actor as subscribers see it. The IP address is only in the log.
type Actor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"` // null for the system
	Name string  `json:"name"`
}

// Target is the object of an audit event.
type Target struct {
	Type         string `json:"type"`
	ID           string `json:"id"`
	Subscription int64  `json:"-"` // row id if it is a subscription, which never receives the event; otherwise 0
}

// Subscription returns the target of an audit event about a subscription.
func Subscription(id string, row int64) Target { return Target{"subscription", id, row} }

// ErasedText replaces an erased text in the details of audit events.
const ErasedText = "erased"

// ErasedUsers are the public ids of users whose data is removed from the history.
type ErasedUsers []string

// CleanDetails returns the details of an audit event without the personal data of these users. byErased means that one of them is the actor.
func (u ErasedUsers) CleanDetails(details []byte, eventType string, byErased bool, about Target) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(details, &members); err != nil {
		return nil, fmt.Errorf("read details: %w", err)
	}
	user := ""
	_ = json.Unmarshal(members["user_id"], &user) // a value of another type names no user
	if slices.Contains(u, user) || about.Type == "user" && slices.Contains(u, about.ID) {
		for _, name := range []string{"name", "email", "external_id"} {
			if value, ok := members[name]; ok && string(value) != "null" && string(value) != `""` {
				members[name] = json.RawMessage(`"` + ErasedText + `"`)
			}
		}
	}
	lastError := ""
	if byErased && eventType == access.SubscriptionDisabled && json.Unmarshal(members["last_error"], &lastError) == nil && strings.HasPrefix(lastError, webhook.DeactivatedBy) {
		members["last_error"] = json.RawMessage(`"` + webhook.DeactivatedBy + access.ErasedUserName + `"`)
	}
	return json.Marshal(members)
}

// CleanData removes the personal data of these users from a published audit event.
func (u ErasedUsers) CleanData(d *Data, eventType string) (err error) {
	byErased := d.Actor.Type == "user" && d.Actor.ID != nil && slices.Contains(u, *d.Actor.ID)
	if byErased {
		d.Actor.Name = access.ErasedUserName
	}
	d.Details, err = u.CleanDetails(d.Details, eventType, byErased, d.Target)
	return err
}

// ofClosed returns the actor and the details of an audit event as the log of a closed organization may have it.
func ofClosed(by access.Actor, eventType string, details map[string]any) (access.Actor, map[string]any) {
	if eventType == access.OrganizationClosed {
		return by, details
	}
	if by.Type != "system" {
		by.Name = ErasedText
	}
	by.IP = ""
	return by, nil
}
