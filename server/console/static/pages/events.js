// The list of events: what was published, and whether it has arrived.
import { html, useMemo, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Tag } from '../ui/badge.js';
import { Choice, Filters, Range, TextFilter, rangeOf, Everywhere, NoneHere, NoneLike } from '../ui/filters.js';
import { Button, LinkButton } from '../ui/button.js';
import { Id } from '../ui/copy.js';
import { Time } from '../ui/time.js';
import { useList, useLoad } from '../ui/hooks.js';
import { Curl } from '../ui/curl.js';
import { api } from '../api.js';
import { href, useQuery } from '../router.js';
import { can, canSwitch, isOperator, session } from '../session.js';
import { settings } from '../settings.js';
import { paths } from '../paths.js';
import { useEventTypes } from './subscription/fields.js';
import { SendAgain, acts } from './events/send_again.js';
import { States } from './events/states.js';

const filters = ['type', 'state', 'subscription', 'key', 'range', 'since', 'until', 'audit', 'in'];

export function Events() {
  const [query] = useQuery();
  const [asking, setAsking] = useState(false);
  const types = useEventTypes();
  const everywhere = query.in === 'all' && isOperator();
  const addresses = useAddresses(query.subscription);
  const period = useMemo(() => rangeOf(query), [query.range, query.since, query.until]);
  const list = useList('/events/', {
    type: query.type, state: query.state, subscription_id: everywhere ? '' : query.subscription, idempotency_key: query.key,
    ...period, organization: everywhere ? 'all' : '', audit_events: query.audit === 'with' ? '' : 'false',
  }, { poll: 5000 });

  const columns = [
    { head: 'Event type', main: true, size: 'xl',
      cell: (e) => html`<span class="two-lines">
      <span><${Tag}>${e.type}<//>${e.test && html` <span class="quiet small">Test</span>`}</span>
      <span class="narrow-only"><${States} ...${e} /></span>
      ${everywhere && html`<bdi class="narrow-only small quiet cut">${e.organization_name}</bdi>`}</span>` },
    { head: 'Deliveries', size: 'l', wide: true, cell: (e) => html`<${States} ...${e} />` },
    { head: 'Id', size: 'xl', wide: true, roomy: everywhere, cell: (e) => html`<${Id} value=${e.id} />` },
    everywhere && { head: 'Organization', wide: true,
      cell: (e) => html`<span class="cut" title=${e.organization_id}><bdi>${e.organization_name}</bdi></span>` },
    { head: 'Published', size: 'm', cell: (e) => html`<${Time} value=${e.timestamp} form="log" />` },
  ].filter(Boolean);

  const isFiltered = filters.some((name) => query[name]);
  const isFirst = list.rows?.length === 0 && !list.more?.hasMore && !isFiltered;
  const publish = can('events:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.eventNew)}>Publish event<//>`;
  const again = !everywhere && !query.key && list.rows?.length > 0 && can('webhooks:write') && acts[query.state];
  const sent = {
    state: query.state, since: period.since ?? '1970-01-01T00:00:00Z',
    ...(period.until && { until: period.until }), ...(query.type && { event_type: query.type }),
    ...(query.subscription && { subscription_id: query.subscription }), audit_events: query.audit === 'with',
  };
  return html`<${Page} title="Events" actions=${(again || publish) && html`
    ${again && html`<${Button} icon="send" onClick=${() => setAsking(true)}>${again === 'recover' ? 'Recover these…' : 'Redeliver these…'}<//>`}${publish}`}>
    ${asking && again && html`<${SendAgain} filter=${sent} onDone=${list.reload} onClose=${() => setAsking(false)} />`}
    ${(!isFirst || isOperator()) && html`<${Filters}>
      <${TextFilter} name="type" label="Type" placeholder="order.*" suggestions=${types.map((t) => t.type)} />
      <${Choice} name="state" label="State" options=${stateOptions} />
      ${!everywhere && can('webhooks:read') && html`<${Choice} name="subscription" label="Subscription" options=${addresses} fixed />`}
      ${query.key && html`<${TextFilter} name="key" label="Idempotency key" />`}
      <${Range} />
      <${Everywhere} name="in" />
      ${can('audit:read') && html`<${AuditEvents} name="audit" />`}
    <//>`}
    <${Table} label="Events" list=${list} columns=${columns}
      href=${(e) => (everywhere && canSwitch() ? href(paths.event(e.id), { org: e.organization_id }) : href(paths.event(e.id)))}
      empty=${isFiltered ? html`<${NoneLike} title="No event matches the filters" text="Events are kept for a limited time." />` : html`<${First} />`} />
  <//>`;
}

// useAddresses returns the newest subscriptions as options of a filter, with the one that the URL names.
function useAddresses(named) {
  const { data } = useLoad(async (signal) => {
    if (!can('webhooks:read')) return [];
    const { data: newest } = await api.get('/webhooks/subscriptions/', { signal, query: { limit: 200 } });
    if (!named || newest.some((s) => s.id === named)) return newest;
    const other = await api.get(`/webhooks/subscriptions/${encodeURIComponent(named)}/`, { signal }).catch(() => ({ url: named }));
    return [...newest, { ...other, id: named }];
  }, [named]);
  return (data ?? []).map((s) => [s.id, endOf(s.url?.replace(/^\w+:\/\//, '') ?? s.description ?? 'Feed')]);
}

// endOf keeps the end of a long address, which tells it from others.
const endOf = (text) => (text.length > 26 ? '…' + text.slice(-25) : text);

const stateOptions = [['delivered', 'Delivered'], ['pending', 'Waiting'], ['exhausted', 'Gave up'],
  ['dropped', 'Discarded'], ['expired', 'Expired'], ['nobody', 'Sent nowhere']];

function AuditEvents({ name }) {
  const [query, setQuery] = useQuery();
  return html`<label class="check"><input type="checkbox" checked=${query[name] === 'with'}
    onChange=${(e) => setQuery({ [name]: e.target.checked ? 'with' : null })} /> Audit events</label>`;
}

const First = () => html`<${NoneHere} what="events" how="Publish the first event with curl" title="Waiting for the first event…"
  text=${`${session.get().portal ? settings.name : 'Your product'} publishes an event when something happens. Each subscription that wants its
    type gets it. It appears here at once.`}>
  ${can('events:write') && html`<${Curl} path="/events/" body='{"type": "order.paid", "data": {"order": 1001}}' />`}<//>`;
