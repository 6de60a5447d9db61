// Package platform owns the endpoints of operators: customers and people, what they may do, and the process with its queue and its
// database. It has no routes and no SQL. It does not check callers: the server decides who may call an endpoint.
package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/form"
)

// Store is everything that the endpoints ask of the store. Each file declares its own part.
type Store interface {
	form.LookupStore
	organizationStore
	memberStore
	removalStore
	portalStore
	userStore
	tokenStore
	planStore
	roleStore
	permissionStore
	appliedStore
	systemStore
	queueStore
	backupStore
	clockStore
}

// Options configure the endpoints. All are required.
type Options struct {
	Store      Store
	ConsoleURL string                                            // where browsers reach the server, in links to the console
	Deliveries func(context.Context) (warning string, err error) // whether deliveries are sent
}

// Handlers has the handlers of every resource. Each one has only what it needs.
type Handlers struct {
	Organizations Organizations
	Members       Members
	Removals      Removals
	Portals       Portals
	Users         Users
	Tokens        Tokens
	Plans         Plans
	Roles         Roles
	Permissions   Permissions
	Applied       Applied
	System        System
	Queue         Queue
	Backups       Backups
	Clock         Clock
}

// New returns the handlers.
func New(o Options) Handlers {
	lookup := form.Lookup{Store: o.Store}
	return Handlers{
		Organizations: Organizations{o.Store, lookup},
		Members:       Members{o.Store, lookup},
		Removals:      Removals{o.Store},
		Portals:       Portals{o.Store, lookup, o.ConsoleURL},
		Users:         Users{o.Store},
		Tokens:        Tokens{o.Store, lookup},
		Plans:         Plans{o.Store},
		Roles:         Roles{o.Store, lookup},
		Permissions:   Permissions{o.Store},
		Applied:       Applied{o.Store},
		System:        System{o.Store, build.Read(), time.Now(), o.Deliveries},
		Queue:         Queue{o.Store},
		Backups:       Backups{o.Store},
		Clock:         Clock{o.Store},
	}
}
