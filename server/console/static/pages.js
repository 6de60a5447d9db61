import { settings } from './settings.js';

// The pages: path, title, and who sees them. from loads the module of a page when it is opened, or before, while the browser has
// nothing to do; page is its name there. nav puts a page into the side bar: [group, icon]. needs is the permission to read what
// the page shows: nobody without it loads the module. A page that is not here does not exist yet.
export const pages = [
  { path: '/', title: 'Overview', from: () => import('./pages/overview.js'), page: 'Overview', needs: 'webhooks:read', nav: ['', 'overview'] },
  { path: '/subscriptions/', title: 'Subscriptions', from: () => import('./pages/subscriptions.js'),
    page: 'Subscriptions', needs: 'webhooks:read', nav: ['', 'subscriptions'] },
  { path: '/subscriptions/new/', title: 'New subscription', from: () => import('./pages/subscription_new.js'),
    page: 'SubscriptionNew', needs: 'webhooks:write' },
  { path: '/subscriptions/{id}/', title: 'Subscription', from: () => import('./pages/subscription.js'), page: 'Subscription', needs: 'webhooks:read' },
  { path: '/events/', title: 'Events', from: () => import('./pages/events.js'), page: 'Events', needs: 'events:read', nav: ['', 'events'] },
  { path: '/events/new/', title: 'Publish an event', from: () => import('./pages/event_new.js'), page: 'EventNew', needs: 'events:write' },
  { path: '/events/{id}/', title: 'Event', from: () => import('./pages/event.js'), page: 'Event', needs: 'events:read' },
  { path: '/keys/', title: 'API keys', from: () => import('./pages/keys.js'), page: 'Keys', needs: 'api_keys:read', nav: ['', 'keys'] },
  { path: '/keys/new/', title: 'New API key', from: () => import('./pages/key_new.js'), page: 'NewKey', needs: 'api_keys:write' },
  { path: '/keys/explain/', title: 'Explain a request', from: () => import('./pages/explain.js'), page: 'ExplainRequest', needs: 'api_keys:read' },
  { path: '/keys/{id}/', title: 'API key', from: () => import('./pages/key.js'), page: 'Key', needs: 'api_keys:read' },
  { path: '/audit/', title: 'Audit log', from: () => import('./pages/audit.js'), page: 'Audit', needs: 'audit:read', nav: ['', 'audit'] },
  { path: '/organizations/', title: 'Organizations', from: () => import('./pages/organizations.js'),
    page: 'Organizations', needs: 'platform:read', nav: ['Operator', 'organizations'] },
  { path: '/organizations/{id}/', title: 'Organization', from: () => import('./pages/organization.js'), page: 'Organization', needs: 'platform:read' },
  { path: '/users/', title: 'Users', from: () => import('./pages/users.js'), page: 'Users', needs: 'platform:read', nav: ['Operator', 'users'] },
  { path: '/users/{id}/', title: 'User', from: () => import('./pages/user.js'), page: 'User', needs: 'platform:read' },
  { path: '/plans/', title: 'Plans', from: () => import('./pages/plans.js'), page: 'Plans', needs: 'platform:read', nav: ['Operator', 'plans'] },
  { path: '/plans/{name}/', title: 'Plan', from: () => import('./pages/plans.js'), page: 'Plan', needs: 'platform:read' },
  { path: '/roles/', title: 'Roles', from: () => import('./pages/roles.js'), page: 'Roles', needs: 'platform:read', nav: ['Operator', 'roles'] },
  { path: '/roles/{name}/', title: 'Role', from: () => import('./pages/roles.js'), page: 'Role', needs: 'platform:read' },
  { path: '/permissions/', title: 'Permissions', from: () => import('./pages/permissions.js'),
    page: 'Permissions', needs: 'platform:read', nav: ['Operator', 'lock'] },
  { path: '/permissions/{permission}/', title: 'Permission', from: () => import('./pages/permissions.js'), page: 'Permission', needs: 'platform:read' },
  { path: '/event-types/', title: 'Event types', from: () => import('./pages/event_types.js'),
    page: 'EventTypes', needs: 'platform:read', nav: ['Operator', 'menu'] },
  { path: '/event-types/{type}/', title: 'Event type', from: () => import('./pages/event_types.js'), page: 'EventType', needs: 'platform:read' },
  { path: '/system/', title: 'System', from: () => import('./pages/system.js'), page: 'System', needs: 'platform:read', nav: ['Operator', 'system'] },
  settings.parts && { path: '/parts/', title: 'Parts', from: () => import('./pages/parts.js'), page: 'Parts', needs: 'webhooks:read' },
].filter(Boolean);
