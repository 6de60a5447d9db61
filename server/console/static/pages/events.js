// The list of events: what was published, and whether it has arrived.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Tag } from '../ui/badge.js';
import { Filters, Choice, TextFilter, TimeFilter } from '../ui/filters.js';
import { LinkButton } from '../ui/button.js';
import { Code } from '../ui/code.js';
import { Id } from '../ui/copy.js';
import { Empty } from '../ui/state.js';
import { Time, number } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { href, navigate, useQuery } from '../router.js';
import { can, canSwitch, isOperator } from '../session.js';
import { settings } from '../settings.js';
import { paths } from '../paths.js';
import { useEventTypes } from './subscription/fields.js';

const filters = ['type', 'key', 'since', 'until'];

export function Events() {
  const [query] = useQuery();
  const types = useEventTypes();
  const everywhere = query.in === 'all' && isOperator();
  const list = useList('/events/', {
    type: query.type, idempotency_key: query.key, since: query.since, until: query.until, organization: everywhere ? 'all' : '',
  }, { poll: 5000 });

  const columns = [
    { head: 'Event type', main: true, cell: (e) => html`<${Tag}>${e.type}<//>` },
    { head: 'Deliveries', size: 's', number: true, cell: (e) => html`<span class=${e.deliveries ? '' : 'quiet'}>${number(e.deliveries)}</span>` },
    { head: 'Id', size: 'id', wide: true, cell: (e) => html`<${Id} value=${e.id} />` },
    everywhere && { head: 'Organization', size: 'id', wide: true, cell: (e) => html`<${Id} value=${e.organization_id} href=${href(paths.organization(e.organization_id))} />` },
    { head: 'Published', size: 'm', cell: (e) => html`<${Time} value=${e.timestamp} />` },
  ].filter(Boolean);

  return html`<${Page} title="Events"
    actions=${can('events:write') && html`<${LinkButton} kind="primary" icon="plus" href=${href(paths.eventNew)}>Publish event<//>`}>
    <${Filters}>
      <${TextFilter} name="type" label="Type" placeholder="order.*" suggestions=${types} />
      <${GoToEvent} />
      <${TextFilter} name="key" label="Idempotency key" />
      <${TimeFilter} name="since" label="Since" />
      <${TimeFilter} name="until" label="Until" />
      ${isOperator() && html`<${Choice} name="in" label="Organization" all="This one" options=${[['all', 'All']]} />`}
    <//>
    <${Table} label="Events" list=${list} columns=${columns}
      href=${(e) => (everywhere && canSwitch() ? href(paths.event(e.id), { org: e.organization_id }) : href(paths.event(e.id)))}
      empty=${filters.some((name) => query[name]) ? html`<${NoneLike} />` : html`<${First} />`} />
  <//>`;
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
  -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
  -d '{"type": "order.paid", "data": {"order": 1001}}'`;
