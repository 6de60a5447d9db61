// The chart of a subscription, and its attempts: the list at the left, the selected attempt at the right.
import { html, cx, useEffect, useRef } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Chart } from '../../ui/chart.js';
import { Table } from '../../ui/table.js';
import { Badge } from '../../ui/badge.js';
import { Filters, Choice, TextFilter, Range, Segments, rangeOf, rangeStart, NoneLike } from '../../ui/filters.js';
import { Button } from '../../ui/button.js';
import { Empty, ErrorBar } from '../../ui/state.js';
import { Time, duration } from '../../ui/time.js';
import { useList, usePoll } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href, place, useQuery } from '../../router.js';
import { can } from '../../session.js';
import { Attempt } from './attempt.js';
import { useEventTypes } from './fields.js';

const periods = [['24h', '24 h', 1800], ['7d', '7 d', 10_800], ['30d', '30 d', 43_200], ['1y', '1 y', 86_400]]; // with the step in seconds
const filters = ['outcome', 'type', 'event', 'range'];

export function Activity({ subscription, sent, actions, changed }) {
  const [query] = useQuery();
  const types = useEventTypes();
  const { outcome, type, event, attempt } = query;
  const list = useList(`/webhooks/subscriptions/${subscription.id}/deliveries/`,
    { outcome, event_type: type, event_id: event, ...rangeOf(query) }, { poll: 5000 });
  const before = useRef(sent);
  useEffect(() => {
    if (before.current !== sent) list.reload();
    before.current = sent;
  }, [sent]);
  const filtered = filters.some((name) => query[name]);

  return html`
    <div class="list-only"><${History} subscription=${subscription} /></div>
    <${Section} title="Attempts">
      <div class="list-only"><${Filters}>
        <${Choice} name="outcome" label="Outcome" options=${[['succeeded', 'Succeeded'], ['failed', 'Failed'], ['sending', 'Sending'], ['interrupted', 'Interrupted']]} />
        <${TextFilter} name="type" label="Type" placeholder="order.*" suggestions=${types.map((t) => t.type)} />
        <${TextFilter} name="event" label="Event" placeholder="evt_…" />
        <${Range} custom />
      <//></div>
      <div class=${cx('split', attempt && 'open')}>
        <${Table} label="Attempts" list=${list} columns=${attempt ? narrow : all} selected=${attempt}
          href=${(a) => href(place.get().path, { ...query, attempt: a.id })}
          empty=${filtered ? html`<${NoneLike} title="No attempt matches the filters" text="Attempts are kept for a limited time. An event may still wait for its first attempt." />` : html`<${First} ...${{ subscription, actions }} />`} />
        ${attempt && html`<${Attempt} key=${attempt} ...${{ id: attempt, subscription, sent, actions, changed }} />`}
      </div>
    <//>`;
}

function History({ subscription: { id } }) {
  const [query] = useQuery();
  const [period, , step] = periods.find(([value]) => value === query.chart) ?? periods[0];
  const { data, error, reload } = usePoll((signal) => api.get('/webhooks/stats/', {
    signal, query: { subscription_id: id, since: rangeStart(period), step },
  }), [id, period], 15_000);
  const choice = html`<${Segments} name="chart" label="Period" items=${periods} value=${period} />`;
  return error && !data ? html`<${ErrorBar} error=${error} retry=${reload} />` : html`<${Chart} stats=${data} aside=${choice} />`;
}

const short = (text) => text?.split(':')[0];

const Result = ({ attempt: a }) => html`<${Badge} status=${a.outcome} text=${a.outcome === 'failed' || a.outcome === 'succeeded'
  ? html`<span class="hidden-label">${a.outcome} </span>${a.response_status ?? short(a.error)}` : undefined} />`;

const narrow = [
  { head: 'Result', size: 's', cell: (a) => html`<${Result} attempt=${a} />` },
  { head: 'Event type', main: true, cell: (a) => html`<span class="cut mono">${a.event_type}</span>` },
  { head: 'Attempt', size: 'xs', wide: true, cell: (a) => html`<span class="quiet">#${a.attempt_number}</span>` },
  { head: 'Time', size: 'm', cell: (a) => html`<${Time} value=${a.attempted_at} form="log" />` },
];

const all = [
  narrow[0],
  { ...narrow[1], size: 'l' },
  { head: 'Event', wide: true, cell: (a) => html`<span class="cut mono quiet">${a.event_id}</span>` },
  { head: 'Attempt', size: 'm', wide: true, cell: (a) => html`<span class="quiet">#${a.attempt_number}${a.trigger === 'manual' ? ', by hand' : a.trigger === 'test' ? ', test' : ''}</span>` },
  { head: 'Duration', size: 's', number: true, wide: true, cell: (a) => duration(a.outcome === 'sending' ? null : a.duration_ms) },
  narrow[3],
];

const First = ({ subscription, actions }) => html`<${Empty} title="Nothing has been sent yet" text="Each request to the address appears here, with the answer. Waiting for the first event…">
  ${!subscription.isDeleted && can('webhooks:write') && html`<${Button} icon="send" onClick=${() => actions.test()}>Send test<//>`}<//>`;
