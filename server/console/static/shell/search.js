// The search box of every page: any id, prefix, external id or name leads to its page.
import { html } from '../ui/html.js';
import { Icon } from '../ui/icon.js';
import { api } from '../api.js';
import { navigate } from '../router.js';
import { pathOf } from '../paths.js';
import { session, isOperator } from '../session.js';
import { Combobox } from './combobox.js';

const kinds = {
  organization: ['organizations', 'Organization'], user: ['users', 'User'], subscription: ['subscriptions', 'Subscription'],
  event: ['events', 'Event'], attempt: ['send', 'Attempt'], api_key: ['keys', 'API key'], access_token: ['lock', 'Access token'],
  audit_event: ['audit', 'Audit event'], plan: ['plans', 'Plan'], role: ['roles', 'Role'], permission: ['roles', 'Permission'],
};

const find = async (q, signal) => (await api.get('/search/', { query: { q }, signal })).data.map((r) => ({ ...r, key: `${r.type} ${r.id} ${r.organization_id}` }));

function open(result) {
  const [path, query] = pathOf(result);
  const own = session.get().home.organization.id;
  const elsewhere = result.organization_id && isOperator() && result.type !== 'organization';
  navigate(path, elsewhere ? { ...query, org: result.organization_id === own ? '' : result.organization_id } : query);
}

export const Search = () => html`<${Combobox} id="search" label="Search" placeholder="Search any id, name or e-mail address"
  find=${find} choose=${open} none=${(text) => `Nothing has the id, prefix or name “${text}”.`}
  before=${html`<${Icon} name="search" class="search-icon" /><kbd class="search-key" aria-hidden="true">/</kbd>`}
  show=${(r) => html`<${Icon} name=${kinds[r.type]?.[0] ?? 'info'} />
    <span class="option-text"><span class="cut strong"><bdi>${r.title}</bdi></span><span class="cut small quiet"><bdi>${r.detail}</bdi></span></span>
    <span class="option-kind small quiet">${kinds[r.type]?.[1] ?? r.type}${isOperator() && r.organization_name && html`<br /><bdi>${r.organization_name}</bdi>`}</span>`} />`;
