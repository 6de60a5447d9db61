// The list of events: what was published, and whether it has arrived.
import { html, useMemo, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge, Tag } from '../ui/badge.js';
import { Filters, Choice, Range, TextFilter, rangeOf } from '../ui/filters.js';
import { LinkButton } from '../ui/button.js';
import { Code } from '../ui/code.js';
import { Id } from '../ui/copy.js';
import { Empty } from '../ui/state.js';
import { Time, number } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { href, navigate, place, useQuery } from '../router.js';
import { can, canSwitch, isOperator } from '../session.js';
import { settings } from '../settings.js';
import { paths } from '../paths.js';
import { useEventTypes } from './subscription/fields.js';

const filters = ['type', 'key', 'range', 'since', 'until'];

export function Events() {
  const [query] = useQuery();
  const types = useEventTypes();
  const everywhere = query.in === 'all' && isOperator();
  const period = useMemo(() => rangeOf(query), [query.range, query.since, query.until]);
  const list = useList('/events/', {
    type: query.type, idempotency_key: query.key, ...period, organization: everywhere ? 'all' : '', audit_events: query.audit === 'with' ? '' : 'false',
  }, { poll: 5000 });

  const columns = [
    { head: 'Event type', main: true, cell: (e) => html`<span class="two-lines"><span><${Tag}>${e.type}<//></span><span class="narrow-only"><${States} states=${e.states} /></span></span>` },
    { head: 'Deliveries', size: everywhere ? 'l' : 'xl', wide: true, cell: (e) => html`<${States} states=${e.states} />` },
    { head: 'Id', size: 'xl', wide: true, cell: (e) => html`<${Id} value=${e.id} />` },
    everywhere && { head: 'Organization', size: 'l', wide: true, cell: (e) => html`<span class="cut" title=${e.organization_id}><bdi>${e.organization_name}</bdi></span>` },
    { head: 'Published', size: 'm', cell: (e) => html`<${Time} value=${e.timestamp} form="log" />` },
  ].filter(Boolean);

  return html`<${Page} title="Events"
    actions=${can('events:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.eventNew)}>Publish event<//>`}>
    <${Filters}>
      <${TextFilter} name="type" label="Type" placeholder="order.*" suggestions=${types} />
      <${GoToEvent} />
      <${TextFilter} name="key" label="Idempotency key" />
      <${Range} custom />
      ${can('audit:read') && html`<${Choice} name="audit" label="Audit events" all="Hidden" options=${[['with', 'Shown']]} />`}
      ${isOperator() && html`<${Choice} name="in" label="Organization" all="This one" options=${[['all', 'All']]} />`}
    <//>
    <${Table} label="Events" list=${list} columns=${columns}
      href=${(e) => (everywhere && canSwitch() ? href(paths.event(e.id), { org: e.organization_id }) : href(paths.event(e.id)))}
      empty=${filters.some((name) => query[name]) ? html`<${NoneLike} />` : html`<${First} />`} />
  <//>`;
}

// The states of deliveries, the problems first: name, status of the badge, words for one and for many.
const states = [
  ['exhausted', 'exhausted', 'failed', 'failed'], ['pending', 'pending', 'waits', 'wait'],
  ['delivered', 'delivered', 'delivered', 'delivered'], ['dropped', 'discarded', 'discarded', 'discarded'],
];

// States says how many subscriptions have got the event: "1 failed, 3 delivered".
function States({ states: counts }) {
  const shown = states.filter(([name]) => counts[name] > 0);
  if (shown.length === 0) return html`<span class="quiet">Sent nowhere</span>`;
  const text = shown.map(([name, , one, many]) => `${number(counts[name])} ${counts[name] === 1 ? one : many}`).join(', ');
  return html`<${Badge} status=${shown[0][1]} text=${text} />`;
}

// GoToEvent opens the page of an event by its id.
function GoToEvent() {
  const [text, setText] = useState('');
  const [wrong, setWrong] = useState(false);
  const open = (event) => {
    event.preventDefault();
    const id = text.match(/evt_[0-7][0-9a-hjkmnp-tv-z]{25}/)?.[0];
    setWrong(!id);
    if (id) navigate(paths.event(id));
  };
  return html`<form class="filter" onSubmit=${open}><label for="event-id">Id</label>
    <input id="event-id" class="mono" value=${text} placeholder="evt_…" autocomplete="off" spellcheck="false"
      aria-invalid=${wrong ? 'true' : undefined} aria-describedby=${wrong ? 'event-id-error' : undefined}
      onInput=${(e) => { setText(e.target.value); setWrong(false); }} />
    ${wrong && html`<span id="event-id-error" class="danger small filter-error" role="alert">An id has the form evt_ and 26 characters.</span>`}
  </form>`;
}

const NoneLike = () => html`<${Empty} title="No event matches the filters" text="Events are deleted after some time, the oldest first.">
  <${LinkButton} href=${href(paths.events)}>Show all<//><//>`;

const First = () => html`<${Empty} title="Waiting for the first event…"
  text="Your product publishes an event when something happens. Keyhook sends it to each subscription that wants its type. It appears here at once.">
  ${can('events:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.eventNew)}>Publish event<//>`}
  <${Code} label="The same with curl" text=${curl()} /><//>`;

const curl = () => `curl ${location.origin}${settings.base}/api/v1/events/ \\
  -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\${place.get().org && `
  -H "X-Organization-Id: ${place.get().org}" \\`}
  -d '{"type": "order.paid", "data": {"order": 1001}}'`;
