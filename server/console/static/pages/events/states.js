// What became of an event, in a list: how many subscriptions have got it, and how many have not.
import { html } from '../../ui/html.js';
import { Badge, Tag } from '../../ui/badge.js';
import { Section } from '../../ui/page.js';
import { Table } from '../../ui/table.js';
import { Time, number } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href } from '../../router.js';
import { paths } from '../../paths.js';

// The states of deliveries, the problems first: name, status of the badge, word.
const states = [
  ['exhausted', 'exhausted', 'gave up'], ['held', 'paused', 'not being sent'], ['waiting', 'pending', 'waiting'],
  ['delivered', 'delivered', 'delivered'], ['dropped', 'discarded', 'discarded'],
];

// States says how many subscriptions have got the event: "1 gave up, 3 delivered".
export function States({ states: read, test }) {
  if (test && read.exhausted > 0) return html`<${Badge} status="exhausted" text="Test failed" />`;
  const counts = { ...read, waiting: read.pending - read.held };
  const shown = states.filter(([name]) => counts[name] > 0);
  if (shown.length === 0) return html`<span class="quiet">Sent nowhere</span>`;
  const text = shown.map(([name, , word]) => `${number(counts[name])} ${word}`).join(', ');
  return html`<${Badge} status=${shown[0][1]} text=${text} />`;
}

const columns = [
  { head: 'Event type', main: true, size: 'xl', cell: (e) => html`<span class="two-lines"><span><${Tag}>${e.type}<//></span>
    <span class="narrow-only"><${States} states=${e.states} /></span></span>` },
  { head: 'Deliveries', wide: true, cell: (e) => html`<${States} states=${e.states} />` },
  { head: 'Published', size: 'm', cell: (e) => html`<${Time} value=${e.timestamp} form="log" />` },
];

// Latest are the newest events. It loads them again when changed differs.
export function Latest({ changed }) {
  const { data } = useLoad((signal) => api.get('/events/', { signal, query: { limit: 20, audit_events: false } }), [changed]);
  const rows = data?.data.filter((e) => !e.test).slice(0, 6) ?? [];
  return rows.length > 0 && html`<${Section} title="Latest events" actions=${html`<a href=${href(paths.events)}>All events</a>`}>
    <${Table} label="Latest events" list=${{ rows }} columns=${columns} href=${(e) => href(paths.event(e.id))} /><//>`;
}
