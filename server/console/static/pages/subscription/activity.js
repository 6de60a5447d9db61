// The chart of a subscription, and its attempts: the list at the left, the selected attempt at the right.
import { html, cx, useEffect, useMemo, useRef } from '../../ui/html.js';
import { Chart } from '../../ui/chart.js';
import { Table } from '../../ui/table.js';
import { Badge } from '../../ui/badge.js';
import { Filters, Between, Choice, TextFilter, Segments, rangeOf, NoneLike } from '../../ui/filters.js';
import { Button } from '../../ui/button.js';
import { Empty, ErrorBar } from '../../ui/state.js';
import { Time, duration } from '../../ui/time.js';
import { useList, usePoll } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href, place, useQuery } from '../../router.js';
import { can } from '../../session.js';
import { Attempt } from './attempt.js';
import { useEventTypes } from './fields.js';
import { classOf } from './mend.js';

// With the step in seconds.
const periods = [['1h', '1 h', 60], ['24h', '24 h', 1800], ['7d', '7 d', 10_800], ['30d', '30 d', 43_200], ['1y', '1 y', 86_400]];
const usual = '7d'; // the period of the chart and the list
const outcomes = [['succeeded', 'Succeeded'], ['failed', 'Failed'], ['sending', 'Sending'], ['interrupted', 'Interrupted']];
const filters = ['outcome', 'type', 'event', 'range'];

export function Activity({ subscription, sent, actions, changed }) {
  const [query] = useQuery();
  const types = useEventTypes();
  const { outcome, type, event, attempt } = query;
  const period = useMemo(() => rangeOf(query, usual), [query.range, query.since, query.until]);
  const list = useList(`/webhooks/subscriptions/${subscription.id}/deliveries/`,
    { outcome, event_type: type, event_id: event, ...period }, { poll: 5000 });
  const before = useRef(sent);
  useEffect(() => {
    if (before.current !== sent) list.reload();
    before.current = sent;
  }, [sent]);

  return html`
    <h2 class=${subscription.isDeleted ? 'list-only' : 'hidden-label'}>Attempts</h2>
    <div class="list-only"><${History} subscription=${subscription} /></div>
    <div class="list-only"><${Filters}>
      <${Choice} name="outcome" label="Outcome" options=${outcomes} />
      <${TextFilter} name="type" label="Type" placeholder="order.*" suggestions=${types.map((t) => t.type)} />
      <${TextFilter} name="event" label="Event" placeholder="evt_…" />
      <${Between} />
    <//></div>
    <div class=${cx('split', attempt && 'open')}>
      <${Table} label="Attempts" list=${list} columns=${attempt ? narrow : all} selected=${attempt}
        href=${(a) => href(place.get().path, { ...query, attempt: a.id })} empty=${html`<${None} ...${{ subscription, actions }} />`} />
      ${attempt && html`<${Attempt} key=${attempt} ...${{ id: attempt, subscription, sent, actions, changed }} />`}
    </div>`;
}

// History is the chart. A click on a bar makes its time the period of the page; the back button undoes it.
function History({ subscription: { id } }) {
  const [query] = useQuery();
  const range = query.range === 'custom' || periods.some(([value]) => value === query.range) ? query.range : usual;
  const [, , step] = periods.find(([value]) => value === range) ?? [];
  const { data, error, reload } = usePoll((signal) => api.get('/webhooks/stats/', {
    signal, query: { subscription_id: id, step, ...rangeOf(query, usual) },
  }), [id, range, query.since, query.until], 15_000);
  const choice = html`<${Segments} name="range" label="Period" none=${usual} value=${range}
    items=${[...periods, ['custom', 'From … to']]} />`;
  const hrefOf = (since, until) => href(place.get().path, { ...query, range: 'custom', since, until });
  return error && !data ? html`<${ErrorBar} error=${error} retry=${reload} />`
    : html`<${Chart} stats=${data} aside=${choice} hrefOf=${hrefOf} />`;
}

const Result = ({ attempt: a }) => html`<${Badge} status=${a.outcome} text=${a.outcome === 'failed' || a.outcome === 'succeeded'
  ? html`<span class="hidden-label">${a.outcome} </span>${a.response_status ?? classOf(a.error)}` : undefined} />`;

const special = { manual: ', by hand', test: ', test' };
const Which = ({ attempt: a }) => html`<span class="quiet">#${a.attempt_number}${special[a.trigger] ?? ''}</span>`;

const narrow = [
  { head: 'Result', size: 's', cell: (a) => html`<${Result} attempt=${a} />` },
  { head: 'Event type', main: true, cell: (a) => html`<span class="cut mono">${a.event_type}</span>` },
  { head: 'Attempt', size: 's', wide: true, cell: (a) => html`<${Which} attempt=${a} />` },
  { head: 'Time', size: 'm', cell: (a) => html`<${Time} value=${a.attempted_at} form="log" />` },
];

const all = [
  narrow[0],
  { ...narrow[1], size: 'l' },
  { head: 'Event', wide: true, cell: (a) => html`<span class="cut mono quiet">${a.event_id}</span>` },
  { ...narrow[2], size: 'm' },
  { head: 'Duration', size: 's', number: true, wide: true, cell: (a) => duration(a.outcome === 'sending' ? null : a.duration_ms) },
  narrow[3],
];

const waitFor = {
  paused: 'The subscription is paused: events wait until it is resumed.',
  disabled: 'The subscription is disabled: events wait until it is recovered.',
  plan: 'The plan has no webhooks.', queue_held: 'All sending is stopped for now: events wait.',
};

// None is in the place of a list without attempts: of the filters, of the period, or at all.
function None({ subscription: s, actions }) {
  const [query] = useQuery();
  const isKept = 'Attempts are kept for a limited time. An event may still wait for its first attempt.';
  if (filters.some((name) => query[name])) return html`<${NoneLike} title="No attempt matches the filters" text=${isKept} />`;
  if (s.isDeleted || s.last_success_at || s.last_failure_at) {
    return html`<${Empty} title="No attempt in the last 7 days" text=${isKept}>
      <a class="button" href=${href(place.get().path, { ...query, range: '1y' })}>Show the last year</a><//>`;
  }
  if (!s.url) return html`<${Empty} title="Nothing is sent to a feed" text="A program reads the events of this subscription." />`;
  const why = waitFor[s.blocked_by] ?? 'Waiting for the first event…';
  return html`<${Empty} title="Nothing has been sent yet" text=${`Each request to the address appears here, with the answer. ${why}`}>
    ${can('webhooks:write') && html`<${Button} icon="send" onClick=${() => actions.test()}>Send test<//>`}<//>`;
}
