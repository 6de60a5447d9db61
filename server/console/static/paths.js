// The path of the page of each thing, below the root of the console.
export const paths = {
  subscriptions: '/subscriptions/',
  subscriptionNew: '/subscriptions/new/',
  subscription: (id) => `/subscriptions/${enc(id)}/`, // ?attempt=att_… selects an attempt
  events: '/events/',
  eventNew: '/events/new/',
  event: (id) => `/events/${enc(id)}/`,
  keys: '/keys/',
  keyNew: '/keys/new/',
  key: (id) => `/keys/${enc(id)}/`,
  explain: '/keys/explain/',
  audit: '/audit/',
  organizations: '/organizations/',
  organization: (id) => `/organizations/${enc(id)}/`,
  users: '/users/',
  user: (id) => `/users/${enc(id)}/`,
  plans: '/plans/',
  plan: (name) => `/plans/${enc(name)}/`,
  roles: '/roles/',
  role: (name) => `/roles/${enc(name)}/`,
  permissions: '/permissions/',
  permission: (key) => `/permissions/${enc(key)}/`,
  eventTypes: '/event-types/',
  eventType: (type) => `/event-types/${enc(type)}/`,
  system: '/system/',
};

// needsAttention is the filter ?status= of subscriptions that fail, or that failures have disabled. With paused=false: a paused one is
// disabled, too.
export const needsAttention = 'failing,disabled';

const enc = encodeURIComponent;

// pathOf returns [path, query] of a result of /search/.
export function pathOf({ type, id, parent_id }) {
  switch (type) {
    case 'attempt': return [paths.subscription(parent_id), { attempt: id }];
    case 'access_token': return [paths.user(parent_id), { token: id }];
    case 'api_key': return [paths.key(id), {}];
    case 'audit_event': return [paths.audit, { id }];
    default: return [paths[type](id), {}];
  }
}
