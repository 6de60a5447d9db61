// The search box of every page: any id, prefix, external id or name leads to its page.
import { html, named } from '../ui/html.js';
import { Icon } from '../ui/icon.js';
import { WithTimes } from '../ui/time.js';
import { api } from '../api.js';
import { navigate } from '../router.js';
import { pathOf, paths } from '../paths.js';
import { publicId } from '../elsewhere.js';
import { pageOf } from '../load.js';
import { session, actingIn, can, isOperator, isShown } from '../session.js';
import { Combobox } from './combobox.js';

const kinds = {
  organization: ['organizations', 'Organizations'], user: ['users', 'Users'], subscription: ['subscriptions', 'Subscriptions'],
  event: ['events', 'Events'], attempt: ['send', 'Attempts'], api_key: ['keys', 'API keys'], access_token: ['lock', 'Access tokens'],
  audit_event: ['audit', 'Audit log'], plan: ['plans', 'Plans'], role: ['roles', 'Roles'], permission: ['roles', 'Permissions'],
  event_type: ['menu', 'Event types'],
};

const around = '[\\s"\'`“”‘’«»<>()\\[\\]{},;]+';
const edges = new RegExp(`^${around}|${around}$|(\\.{3}|…)(${around})?$`, 'g');

const rawKey = /\b[a-z][0-9a-z]*_[0-9A-Za-z]{33,}/; // also if its end was not copied

// prefixOf cuts a raw key to its prefix, so that no secret gets into a URL.
export const prefixOf = (text) => text.trim().replace(/^([a-z][0-9a-z]*_[0-9A-Za-z]{6})[0-9A-Za-z]+$/, '$1');

// clean finds the id or the raw key in what was pasted from a log, a ticket or an address, else takes off spaces, quotes and brackets.
export function clean(text) {
  const id = publicId.exec(text)?.[0].toLowerCase(), key = rawKey.exec(text)?.[0];
  return id ?? (key ? prefixOf(key) : text.replace(edges, '').replace(/\s+/g, ' '));
}

// find returns what the caller can open. Results of one type follow each other, the type of the best result first.
async function find(q, signal) {
  const [{ data }, eventTypes] = await Promise.all([api.get('/search/', { query: { q }, signal }), typesLike(q.toLowerCase())]);
  const types = [...new Set(data.map((r) => r.type))];
  const found = data.sort((a, b) => types.indexOf(a.type) - types.indexOf(b.type));
  return [...found, ...eventTypes].filter(opens).map((r) => ({ ...r, key: `${r.type} ${r.id} ${r.organization_id}` }));
}

const mostTypes = 6, minute = 60_000;
let known = { of: '', at: 0, types: [] }; // the event types of an organization

// typesLike returns event types with a text in the name or the description. The API's search has none.
async function typesLike(text) {
  const of = session.get().me?.organization.id;
  if (!can('events:read')) return [];
  if (known.of !== of || Date.now() - known.at > minute) {
    known = { of, at: Date.now(), types: (await api.get('/event-types/')).data };
  }
  return known.types.filter((t) => `${t.type} ${t.description ?? ''}`.toLowerCase().includes(text)).slice(0, mostTypes)
    .map(({ type, description }) => ({ type: 'event_type', id: type, title: type,
      detail: description ?? 'Not in the catalogue', isKnown: Boolean(description) }));
}

function opens(result) {
  const [row] = pageOf(placeOf(result)[0]);
  return row && isShown(row);
}

// placeOf is the path and the query of the page of a result. Only operators have pages of organizations and event types.
function placeOf(result) {
  if (result.type === 'organization' && !isOperator()) return ['/', {}];
  if (result.type === 'event_type') return isOperator() && result.isKnown ? [paths.eventType(result.id), {}] : [paths.events, { type: result.id }];
  return pathOf(result);
}

function open(result) {
  const [path, query] = placeOf(result);
  const elsewhere = result.organization_id && isOperator() && result.type !== 'organization';
  navigate(path, elsewhere ? { ...query, org: actingIn(result.organization_id) } : query);
}

// detailOf leaves out what the title says already. Subscriptions of one host differ in their ids only.
const detailOf = ({ type, id, title, detail }) =>
  (detail.startsWith(title + ', ') ? detail.slice(title.length + 2) : detail) + (type === 'subscription' ? ` · ${id}` : '');

const None = ({ text }) => html`<span class="stack tight"><span>Nothing is found for <bdi class="strong">${text}</bdi>.</span>
  <span class="small">Search for an id, an external id, an idempotency key, the visible beginning of a key (svc_…), an event type, or the beginning of a name,
  an e-mail address or a host.${!isOperator() && ' Only this organization is searched.'}</span></span>`;

export const Search = () => html`<${Combobox} id="search" label="Search" 
  placeholder=${session.get().portal ? 'Search any id or address' : 'Search any id, name or e-mail address'}
  find=${find} clean=${clean} group=${(r) => named(kinds[r.type]?.[1] ?? r.type)} choose=${open} none=${(text) => html`<${None} text=${text} />`}
  before=${html`<${Icon} name="search" class="search-icon" /><kbd class="search-key" aria-hidden="true">/</kbd>`}
  show=${(r) => html`<${Icon} name=${kinds[r.type]?.[0] ?? 'info'} />
    <span class="option-text"><span class="cut strong"><bdi>${r.title}</bdi></span>
      <span class="cut small quiet"><${WithTimes} text=${detailOf(r)} form="log" /></span></span>
    ${isOperator() && r.organization_name && r.type !== 'organization'
      && html`<span class="option-kind small quiet cut"><bdi>${r.organization_name}</bdi></span>`}`} />`;
