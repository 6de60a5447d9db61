// The list of API keys: what each may do, whose it is, and when it was used.
import { html } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge, Tags } from '../ui/badge.js';
import { Icon } from '../ui/icon.js';
import { Filters, Choice, TextFilter, Everywhere, NoneHere, NoneLike } from '../ui/filters.js';
import { LinkButton } from '../ui/button.js';
import { Bar } from '../ui/state.js';
import { Time, number } from '../ui/time.js';
import { useList, useLoad } from '../ui/hooks.js';
import { Curl } from '../ui/curl.js';
import { api } from '../api.js';
import { href, useQuery } from '../router.js';
import { can, canSwitch, isOperator, useSession } from '../session.js';
import { prefixOf } from '../shell/search.js';
import { paths } from '../paths.js';
import { words } from './key/scope.js';

export function Keys() {
  const [query] = useQuery();
  const { me: { plan } } = useSession();
  const everywhere = query.in === 'all' && isOperator();
  const list = useList('/api-keys/', { status: query.status, prefix: query.prefix, organization: everywhere ? 'all' : '' });
  const usage = useLoad((signal) => api.get('/usage/', { signal }), []);

  const isFiltered = Boolean(query.status || query.prefix || everywhere);
  const isFirst = list.rows?.length === 0 && !isFiltered;
  const showsStatus = query.status === 'all' || (query.prefix && !query.status)
    || list.rows?.some((k) => k.status === 'active' && k.rotated_to); // else all have the same

  const creators = new Set(list.rows?.map((k) => k.creator.name)).size; // one says nothing
  const ownerOf = (k) => html`<bdi title=${k.organization_name}>${k.organization_name}</bdi>`;
  const columns = [
    { head: 'Name', main: true, cell: (k) => html`<span class="two-lines"><span class="cut strong" title=${k.name}><bdi>${k.name}</bdi></span>
      ${showsStatus && html`<span class="narrow-only"><${KeyStatus} apiKey=${k} /></span>`}
      ${everywhere && html`<span class="narrow-only small cut">${ownerOf(k)}</span>`}
      <span class="narrow-only mono small quiet nowrap">${k.key_prefix}</span>
      <span class="narrow-only"><${Tags} values=${words(k.scope)} most=${2} /></span></span>` },
    showsStatus && { head: 'Status', size: 'm', wide: true, cell: (k) => html`<${KeyStatus} apiKey=${k} />` },
    { head: 'Prefix', size: 'm', wide: true, cell: (k) => html`<span class="mono quiet">${k.key_prefix}</span>` },
    everywhere && { head: 'Organization', size: 'l', wide: true, cell: (k) => html`<span class="cut">${ownerOf(k)}</span>` },
    { head: 'Permissions', size: 'xl', wide: true, cell: (k) => html`<${Tags} values=${words(k.scope)} most=${everywhere ? 1 : 2} />` },
    { head: 'Networks', size: 'm', wide: true, cell: (k) => html`<span class="cut quiet"
      title=${k.allowed_networks.join('\n')}>${
      k.allowed_networks.length ? k.allowed_networks.join(', ') : 'Any'}</span>` },
    creators > 1 && !everywhere && { head: 'Created by', size: 'l', wide: true, roomy: true, cell: (k) => html`<${Creator} creator=${k.creator} />` },
    { head: 'Last use', size: 'm', cell: (k) => html`<${Time} value=${k.last_used_at} none="Not used yet" />` },
    { head: 'Ends', size: 's', wide: true,
      cell: (k) => html`<span class=${endsSoon(k) ? 'warning' : undefined}><${Time} value=${k.expires_at}
        form=${Date.parse(k.expires_at) - Date.now() > 12096e5 ? 'day' : 'ago'} none="Never" /></span>` },
  ].filter(Boolean);

  return html`<${Page} title="API keys" aside=${!everywhere && usage.data && plan.api_keys && html`<${Used} n=${usage.data.api_keys} plan=${plan} />`}
    actions=${html`<${LinkButton} icon="info" href=${href(paths.explain)}>Explain a request<//>
      ${list.rows && !isFirst && mayCreate(plan) && html`<${NewButton} />`}`}>
    ${!plan.api_keys && html`<${NoPlan} plan=${plan} />`}
    <${Filters}>
      <${Choice} name="status" label="Status" all=${query.prefix ? 'All' : 'Active'}
        options=${[query.prefix ? ['active', 'Active'] : ['all', 'All'], ['revoked', 'Revoked'], ['expired', 'Expired']]} />
      <${TextFilter} name="prefix" label="Prefix" placeholder="svc_AbCdEf" clean=${prefixOf} />
      <${Everywhere} name="in" />
    <//>
    <${Table} label="API keys" list=${list} columns=${columns}
      href=${(k) => href(paths.key(k.id), everywhere && canSwitch() ? { org: k.organization_id } : {})}
      empty=${isFiltered ? html`<${NoneLike} title=${query.prefix ? 'No key has this prefix' : `No key is ${query.status ?? 'active'}`}
        text=${query.prefix && isOperator() ? 'The search box above looks in all organizations.' : undefined} />` : html`<${First} plan=${plan} />`} />
  <//>`;
}

const mayCreate = (plan) => plan.api_keys && can('api_keys:write');

const NewButton = () => html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.keyNew)}>New API key<//>`;

// endsSoon is true for a key that works and ends within a week.
const endsSoon = ({ status, expires_at }) => status === 'active' && expires_at && Date.parse(expires_at) - Date.now() < 6048e5;

// KeyStatus: a rotated key still works until its grace ends.
export const KeyStatus = ({ apiKey: { status, rotated_to } }) =>
  (status === 'active' && rotated_to ? html`<${Badge} status="pending" text="Rotated" />` : html`<${Badge} status=${status} />`);

export const Creator = ({ creator: { name, kind } }) => html`<span class="row creator"
  title=${kind === 'service' ? 'The service account of the organization' : name}>
  <${Icon} name=${kind === 'service' ? 'system' : 'user'} /><span class="cut grow"><bdi>${kind === 'service' ? 'Service account' : name}</bdi></span></span>`;

function Used({ n, plan: { name, max_api_keys: most } }) {
  if (most === null) return html`<span class="quiet">${number(n)} active</span>`;
  return html`<span class=${n >= most ? 'warning' : 'quiet'} title=${`The plan ${name} allows ${number(most)} active keys.`}>
    ${number(n)} of ${number(most)} active</span>`;
}

export const NoPlan = ({ plan }) => html`<${Bar} tone="warning" title=${`The plan “${plan.name}” has no API keys`}>
  <p>No key can be created, and each request with an existing key gets 403. ${isOperator()
    ? 'Change the plan of the organization to allow keys.' : 'The provider of this service can change the plan.'}</p>
  ${isOperator() && html`<div class="row"><${OrganizationButton} /></div>`}<//>`;

export function OrganizationButton() {
  const { me: { organization } } = useSession();
  return html`<${LinkButton} href=${href(paths.organization(organization.id))}>Open ${organization.name}<//>`;
}

const First = ({ plan }) => html`<${NoneHere} what="active API keys" title="No active API key"
  text="With an API key, a program calls this service. It acts as the one who created it, and never does more than its permissions.">
  ${mayCreate(plan) && html`<${NewButton} /><${Curl} path="/api-keys/" body='{"name": "back end", "scope": "events:write"}' />`}<//>`;
