// The pages: path, title, and who sees them. nav puts a page into the side bar: [group, icon]. needs is the permission to read
// what the page shows. A page that is not here does not exist yet.
import { Audit } from './pages/audit.js';
import { Event } from './pages/event.js';
import { EventNew } from './pages/event_new.js';
import { Events } from './pages/events.js';
import { ExplainRequest } from './pages/explain.js';
import { Key } from './pages/key.js';
import { Keys } from './pages/keys.js';
import { NewKey } from './pages/key_new.js';
import { Subscription } from './pages/subscription.js';
import { Organization } from './pages/organization.js';
import { Organizations } from './pages/organizations.js';
import { Permissions, Permission } from './pages/permissions.js';
import { Plans, Plan } from './pages/plans.js';
import { Roles, Role } from './pages/roles.js';
import { SubscriptionNew } from './pages/subscription_new.js';
import { Subscriptions } from './pages/subscriptions.js';

export const pages = [
  { path: '/subscriptions/', title: 'Subscriptions', page: Subscriptions, needs: 'webhooks:read', nav: ['', 'subscriptions'] },
  { path: '/subscriptions/new/', title: 'New subscription', page: SubscriptionNew, needs: 'webhooks:write' },
  { path: '/subscriptions/{id}/', title: 'Subscription', page: Subscription, needs: 'webhooks:read' },
  { path: '/events/', title: 'Events', page: Events, needs: 'events:read', nav: ['', 'events'] },
  { path: '/events/new/', title: 'Publish an event', page: EventNew, needs: 'events:write' },
  { path: '/events/{id}/', title: 'Event', page: Event, needs: 'events:read' },
  { path: '/keys/', title: 'API keys', page: Keys, needs: 'api_keys:read', nav: ['', 'keys'] },
  { path: '/keys/new/', title: 'New API key', page: NewKey, needs: 'api_keys:write' },
  { path: '/keys/explain/', title: 'Explain a request', page: ExplainRequest, needs: 'api_keys:read' },
  { path: '/keys/{id}/', title: 'API key', page: Key, needs: 'api_keys:read' },
  { path: '/audit/', title: 'Audit log', page: Audit, needs: 'audit:read', nav: ['', 'audit'] },
  { path: '/organizations/', title: 'Organizations', page: Organizations, needs: 'platform:read', nav: ['Operator', 'organizations'] },
  { path: '/organizations/{id}/', title: 'Organization', page: Organization, needs: 'platform:read' },
  { path: '/plans/', title: 'Plans', page: Plans, needs: 'platform:read', nav: ['Operator', 'plans'] },
  { path: '/plans/{name}/', title: 'Plan', page: Plan, needs: 'platform:read' },
  { path: '/roles/', title: 'Roles', page: Roles, needs: 'platform:read', nav: ['Operator', 'roles'] },
  { path: '/roles/{name}/', title: 'Role', page: Role, needs: 'platform:read' },
  { path: '/permissions/', title: 'Permissions', page: Permissions, needs: 'platform:read', nav: ['Operator', 'lock'] },
  { path: '/permissions/{permission}/', title: 'Permission', page: Permission, needs: 'platform:read' },
];

// first is the page that opens at the root of the console if there is no overview.
export const first = pages[0].path;
