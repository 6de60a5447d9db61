// The list of subscriptions: what receives events, and what is wrong with it.
import { html } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Address, Badge, Tags, subscriptionStatus } from '../ui/badge.js';
import { Filters, Choice, TextFilter, Everywhere, NoneHere, NoneLike } from '../ui/filters.js';
import { LinkButton } from '../ui/button.js';
import { Time, number } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { Curl } from '../ui/curl.js';
import { href, useQuery } from '../router.js';
import { can, canSwitch, isOperator, useSession } from '../session.js';
import { needsAttention, paths } from '../paths.js';
import { NoWebhooks } from './subscription/health.js';
import { mendOf, wordsOf } from './subscription/mend.js';
import { traits } from './subscription/traits.js';

const statuses = [[needsAttention, 'Needs attention'], ['healthy', 'Healthy'], ['failing', 'Failing'], ['disabled', 'Disabled'], ['paused', 'Paused']];

// A paused subscription is disabled for the API.
const asked = ({ status, pending, search }) => ({ pending, search, ...(status === 'paused' ? { paused: true }
  : { status, paused: status === needsAttention || status === 'disabled' ? false : '' }) });

export function Subscriptions() {
  const { me } = useSession();
  const [query] = useQuery();
  const everywhere = query.in === 'all' && isOperator();
  const list = useList('/webhooks/subscriptions/', {
    ...asked(query), organization: everywhere ? 'all' : '',
  }, { poll: 5000, limit: everywhere ? 200 : 50 });

  const columns = [
    { head: 'Status', size: 'm', wide: true, sort: everywhere && 'status', cell: (s) => html`<${Badge} status=${subscriptionStatus(s)} />` },
    { head: 'Address', main: true, sort: everywhere && 'address', cell: (s) => html`<span class="two-lines">
      <span class="narrow-only cut"><${Badge} status=${subscriptionStatus(s)} />${everywhere && html` <bdi class="strong">${s.organization_name}</bdi>`}</span>
      <span class="cut" title=${s.url}><${Address} url=${s.url} /></span>
      ${about(s) && html`<bdi class="narrow-only cut small quiet">${about(s)}</bdi>`}</span>` },
    { head: 'Description', wide: true, roomy: everywhere, cell: (s) => html`<span class="cut quiet" title=${about(s)}><bdi>${about(s)}</bdi></span>` },
    everywhere && { head: 'Organization', wide: true, sort: 'customer', cell: (s) => html`<a class="above cut" title=${s.organization_name}
      href=${href(paths.organization(s.organization_id))}><bdi>${s.organization_name}</bdi></a>` },
    !everywhere && { head: 'Event types', size: 'm', wide: true, roomy: true, cell: (s) => html`<${Tags} values=${s.event_types} most=${1} none="All" />` },
    { head: 'Waiting', size: 's', number: true, sort: everywhere && 'waiting', down: true,
      cell: (s) => html`<span class=${s.pending_deliveries > 0 ? 'strong' : 'quiet'}>${number(s.pending_deliveries)}</span>` },
    { head: 'Last result', size: 'l', wide: true, cell: (s) => html`<${LastResult} subscription=${s} />` },
  ].filter(Boolean);

  const isFiltered = query.status || query.pending || query.search || everywhere;
  const isFirst = list.rows?.length === 0 && !isFiltered;
  return html`<${Page} title="Subscriptions"
    actions=${!isFirst && can('webhooks:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.subscriptionNew)}>New subscription<//>`}>
    ${!me.plan.webhooks && html`<${NoWebhooks} />`}
    ${(!isFirst || isOperator()) && html`<${Filters}>
      <${Choice} name="status" label="Status" options=${statuses} />
      <${Choice} name="pending" label="Deliveries" options=${[['true', 'Waiting']]} />
      <${TextFilter} name="search" label="Search" placeholder="Address or description" />
      <${Everywhere} name="in" />
    <//>`}
    <${Table} label="Subscriptions" list=${sorted(list, everywhere ? orders[query.sort] : undefined)} columns=${columns}
      href=${(s) => href(paths.subscription(s.id), everywhere && canSwitch() ? { org: s.organization_id } : {})}
      empty=${isFiltered
        ? html`<${NoneLike} title=${query.search ? 'No subscription has this text' : noneLike(query)} />` : html`<${First} />`} />
  <//>`;
}

// sorted has what is wrong first, if the list has no further page, or sorts the rows that are shown.
const order = ['disabled', 'failing', 'plan', 'queue_held', 'paused', 'healthy'];
const rank = (s) => order.indexOf(subscriptionStatus(s));
const sorted = (list, by = !list.more?.hasMore && byState) => (list.rows && by ? { ...list, rows: [...list.rows].sort(by) } : list);
const byState = (a, b) => rank(a) - rank(b) || b.pending_deliveries - a.pending_deliveries;
const compare = (a, b) => String(a).localeCompare(b);
const orders = {
  status: byState, address: (a, b) => compare(a.url, b.url), waiting: (a, b) => b.pending_deliveries - a.pending_deliveries,
  customer: (a, b) => compare(a.organization_name, b.organization_name) || byState(a, b),
};

// about is what is special about how a subscription is sent to, and its description.
const about = (s) => [traits(s), s.description].filter(Boolean).join(' · ');

// shortOf has room beside a time: "answered 503".
const shortOf = (error) => wordsOf(error).replace(/^The receiver /, '');

function LastResult({ subscription }) {
  const { last_error, last_failure_at, last_success_at } = subscription;
  if (subscriptionStatus(subscription) === 'paused') return html`<span class="cut quiet" title=${last_error}>
    <bdi>${wordsOf(last_error) ?? 'Paused'}</bdi></span>`;
  if (last_error) return html`<span class="cut" title=${`${wordsOf(last_error)}. ${mendOf(subscription)}`}>
    ${last_failure_at && html`<span class="small quiet"><${Time} value=${last_failure_at} /></span> `}
    <bdi class="danger">${shortOf(last_error)}</bdi></span>`;
  if (!last_success_at) return html`<span class="quiet">Nothing sent yet</span>`;
  return html`<span class="quiet">Delivered <${Time} value=${last_success_at} /></span>`;
}

function noneLike({ status, pending }) {
  if (pending) return 'No delivery waits here';
  if (status === needsAttention) return 'No subscription needs attention';
  return status ? `No subscription is ${status}` : 'No organization has a subscription';
}

const First = () => html`<${NoneHere} what="subscriptions" title="No subscription yet"
  text="A subscription sends the events of this organization to an HTTPS address, signed, and again until they arrive.">
  ${can('webhooks:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.subscriptionNew)}>New subscription<//>`}
  <${Curl} path="/webhooks/subscriptions/" body='{"url": "https://example.com/webhooks", "event_types": []}' /><//>`;
