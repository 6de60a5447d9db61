// The entries of the audit log in words.
//
//   html`<${Sentence} entry=${entry} />`   Created the API key Back end
import { html } from '../../ui/html.js';
import { href } from '../../router.js';
import { can, isOperator } from '../../session.js';
import { paths } from '../../paths.js';

// The types of entries, and what they say before the name of the target.
export const types = {
  api_key_created: 'Created the API key',
  api_key_revoked: 'Revoked the API key',
  api_key_rotated: 'Rotated the API key',
  webhook_subscription_created: 'Created the subscription',
  webhook_subscription_updated: 'Changed the subscription',
  webhook_subscription_deleted: 'Deleted the subscription',
  webhook_subscription_failing: 'Failing: the subscription',
  webhook_subscription_disabled: 'Disabled after failures: the subscription',
  webhook_subscription_recovered: 'Recovered the subscription',
  webhook_subscription_discarded: 'Discarded waiting deliveries of the subscription',
  webhook_redelivered: 'Sent an event again to the subscription',
  webhook_subscription_replayed: 'Replayed events to the subscription',
  webhook_secret_rotated: 'Rotated the secret of the subscription',
  plan_created: 'Created the plan',
  plan_updated: 'Changed the plan',
  plan_deleted: 'Deleted the plan',
  permission_created: 'Created the permission',
  permission_updated: 'Changed the permission',
  permission_deleted: 'Deleted the permission',
  role_created: 'Created the role',
  role_updated: 'Changed the role',
  role_deleted: 'Deleted the role',
  organization_created: 'Created the organization',
  organization_updated: 'Changed the organization',
  organization_deleted: 'Deleted the organization',
  organization_closed: 'Closed the organization',
  user_created: 'Created the user',
  user_updated: 'Changed the user',
  user_deleted: 'Deleted the user',
  user_erased: 'Erased the personal data of the user',
  member_set: 'Set the role of the user',
  member_removed: 'Removed the user from the organization',
  access_token_created: 'Created the access token',
  access_token_revoked: 'Revoked the access token',
  session_started: 'Signed in',
  session_ended: 'Signed out',
  portal_link_created: 'Created the portal link',
  queue_held: 'Held the queue',
  queue_released: 'Released the queue',
  queue_discarded: 'Discarded the held deliveries',
  clock_accepted: 'Accepted the clock',
  applied_forgotten: 'Forgot what apply has created:',
  backup_created: 'Made the backup',
  database_restored: 'Restored the database from the backup',
};

// isAuditEntry tells an event that publishes an entry of the audit log.
export const isAuditEntry = ({ type, data }) => type in types && Boolean(data?.actor && data.target);

// hrefOf is the page of a thing, or undefined without a page for it.
export function hrefOf({ type, id }) {
  switch (type) {
    case 'api_key': return can('api_keys:read') ? href(paths.key(id)) : undefined;
    case 'subscription': return can('webhooks:read') ? href(paths.subscription(id)) : undefined;
    case 'event': return can('events:read') ? href(paths.event(id)) : undefined;
    case 'organization': case 'user': case 'plan': case 'role': case 'permission':
      return isOperator() && id ? href(paths[type](id)) : undefined;
    case 'queue': case 'clock': case 'backup': return isOperator() ? href(paths.system) : undefined;
    default: return undefined;
  }
}

// nameOf is what people call the target: its name, the host of its URL, or else its id.
export const nameOf = ({ target, details }) => details?.name || details?.url_host || target.id;

const nameless = ['session', 'queue', 'clock'];

// Sentence is the entry as text. isLinked makes the target a link.
export function Sentence({ entry, isLinked = false }) {
  const url = isLinked ? hrefOf(entry.target) : undefined;
  const name = nameless.includes(entry.target.type) ? null : html`<bdi class="strong">${nameOf(entry)}</bdi>`;
  return html`${types[entry.type] ?? entry.type} ${url && name ? html`<a href=${url}>${name}</a>` : name}`;
}
