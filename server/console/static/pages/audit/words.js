// The entries of the audit log in words.
import { html, cx, named } from '../../ui/html.js';
import { href } from '../../router.js';
import { isOperator, itself as ours, linkTo } from '../../session.js';
import { paths } from '../../paths.js';

// The types of entries by what they are about, and what they say around the name of the target: before it, or with … in its place.
const groups = {
  'API keys': {
    api_key_created: 'Created the API key',
    api_key_revoked: 'Revoked the API key',
    api_key_rotated: 'Rotated the API key',
    api_key_expiring: 'Announced the end of the API key',
  },
  Subscriptions: {
    webhook_subscription_created: 'Created the subscription',
    webhook_subscription_updated: 'Changed the subscription',
    webhook_subscription_deleted: 'Deleted the subscription',
    webhook_subscription_failing: '… is failing',
    webhook_subscription_disabled: '… was disabled',
    webhook_subscription_recovered: 'Recovered the subscription',
    webhook_subscription_discarded: 'Discarded waiting deliveries of the subscription',
    webhook_redelivered: 'Sent an event again to the subscription',
    webhook_subscription_replayed: 'Replayed events to the subscription',
    webhook_secret_rotated: 'Rotated the secret of the subscription',
  },
  Organizations: {
    organization_created: 'Created the organization',
    organization_updated: 'Changed the organization',
    organization_deleted: 'Deleted the organization',
    organization_closed: 'Closed the organization',
  },
  People: {
    user_created: 'Created the user',
    user_updated: 'Changed the user',
    user_deleted: 'Deleted the user',
    user_erased: 'Erased the personal data of the user',
    member_set: 'Set the role of the user',
    member_removed: 'Removed the user from the organization',
    access_token_created: 'Created the access token',
    access_token_revoked: 'Revoked the access token',
    access_token_expiring: 'Announced the end of the access token',
    session_started: 'Signed in',
    session_ended: 'Signed out',
    portal_link_created: 'Created the portal link',
  },
  'Roles and plans': {
    role_created: 'Created the role',
    role_updated: 'Changed the role',
    role_deleted: 'Deleted the role',
    event_type_created: 'Described the event type',
    event_type_updated: 'Changed the event type',
    event_type_deleted: 'Removed the event type from the catalogue:',
    permission_created: 'Created the permission',
    permission_updated: 'Changed the permission',
    permission_deleted: 'Deleted the permission',
    plan_created: 'Created the plan',
    plan_updated: 'Changed the plan',
    plan_deleted: 'Deleted the plan',
  },
  System: {
    queue_held: 'Held the queue',
    queue_released: 'Released the queue',
    queue_discarded: 'Discarded the held deliveries',
    clock_accepted: 'Accepted the clock',
    backup_created: 'Made the backup',
    database_restored: 'Restored the database from the backup',
  },
};
const types = Object.assign({}, ...Object.values(groups));

// kindsFor are the options of a filter. Customers have no entries of some groups.
const ofAll = ['Roles and plans', 'System'];
export const kindsFor = (operator) => Object.entries(groups).filter(([group]) => operator || !ofAll.includes(group)).map(([group, each]) =>
  [named(group), Object.entries(each).map(([type, text]) => [type, named(text.replace('…', 'A subscription')).replace(':', '')])]);

// itself is the server as the one who made a change.
export const itself = () => (isOperator() ? 'Keyhook itself' : ours[0].toUpperCase() + ours.slice(1));

// isAuditEntry tells an event that publishes an entry of the audit log.
export const isAuditEntry = ({ type, data }) => type in types && Boolean(data?.actor && data.target);

// hrefOf is the page of a thing, or undefined without a page for it.
export function hrefOf({ type, id }) {
  switch (type) {
    case 'api_key': return linkTo(paths.key(id), 'api_keys:read');
    case 'subscription': return linkTo(paths.subscription(id), 'webhooks:read');
    case 'event': return linkTo(paths.event(id), 'events:read');
    case 'organization': case 'user': case 'plan': case 'role': case 'permission':
      return isOperator() && id ? href(paths[type](id)) : undefined;
    case 'event_type': return isOperator() ? href(paths.eventType(id)) : undefined;
    case 'queue': case 'clock': case 'backup': return isOperator() ? href(paths.system) : undefined;
  }
}

const nameless = ['session', 'queue', 'clock'];

// Sentence is the entry as text. isLinked makes the target a link.
export function Sentence({ entry, isLinked = false }) {
  const { target, type, details } = entry;
  const url = isLinked ? hrefOf(target) : undefined;
  const text = details?.name || details?.url_host || target.id; // what people call it
  const name = nameless.includes(target.type) ? null : html`<bdi class=${cx('strong', text === target.id && 'mono')}>${text}</bdi>`;
  const [before, after] = (named(types[type]) ?? type).split('…');
  const end = name && text === details?.url_host
    && html` <span class="mono small quiet" title=${target.id}>…${target.id.slice(-6)}</span>`; // subscriptions of one host look alike
  return html`${before} ${url && name ? html`<a href=${url}>${name}</a>` : name}${end}${after}`;
}
