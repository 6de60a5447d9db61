// The overview: what needs attention, how deliveries go, and what waits.
import { html, useRef } from '../ui/html.js';
import { Page, Section, Facts } from '../ui/page.js';
import { Chart } from '../ui/chart.js';
import { Table } from '../ui/table.js';
import { Badge } from '../ui/badge.js';
import { Segments } from '../ui/filters.js';
import { ErrorBar, Skeleton } from '../ui/state.js';
import { Time, number, atMost } from '../ui/time.js';
import { href, place, useQuery } from '../router.js';
import { can, session, useSession, isOperator, isShown } from '../session.js';
import { paths } from '../paths.js';
import { useOverview } from './overview/state.js';
import { Attention } from './overview/attention.js';
import { Start } from './overview/start.js';
import { Latest } from './events/states.js';

// With the step in seconds.
const periods = [['1h', '1 h', 60], ['24h', '24 h', 900], ['7d', '7 d', 7200], ['30d', '30 d', 21_600]];

export function Overview() {
  const { me, portal } = useSession();
  const [query] = useQuery();
  const all = isOperator() && (query.in ?? (place.get().org ? 'one' : 'all')) === 'all';
  const [period, , step] = periods.find(([value]) => value === query.range) ?? periods[1];
  const { data, error, reload, stats } = useOverview(all, [period, step]);
  const kept = useRef(); // a secret of the first steps stays, although the server does not answer for a moment
  const state = kept.current = data ?? (portal ? kept.current : undefined);
  const scope = isOperator() && html`<${Segments} name="in" label="Organizations" none=${place.get().org ? 'one' : 'all'} value=${all ? 'all' : 'one'}
    items=${[['all', 'All organizations'], ['one', me.organization.name]]} />`;
  const hasFigures = !portal || (state && state.steps[2] !== false); // a customer begins with the first steps alone
  const choice = hasFigures && html`<${Segments} name="range" label="Period" items=${periods} none="24h" value=${period} />`;
  const hrefOf = (since, until) => href(paths.events, { range: 'custom', since, until, in: all ? 'all' : '' });
  return html`<${Page} title="Overview" actions=${html`${scope}${choice}`}>
    ${error && html`<${ErrorBar} error=${error} retry=${reload} />`}
    ${state ? html`
      <${Start} state=${state} reload=${reload} />
      ${hasFigures && html`<${Figures} stats=${stats.data} backlog=${state.backlog} />`}
      <${Attention} key=${all} state=${state} all=${all} />
      ${hasFigures && (stats.error ? html`<${ErrorBar} error=${stats.error} retry=${stats.reload} />`
        : html`<${Chart} stats=${stats.data} hrefOf=${showsEvents() && hrefOf} />`)}
      ${state.backlog.pending > 0 && html`<${Waiting} all=${all} blocked=${state.backlog.blocked} />`}
      ${hasFigures && !all && showsEvents() && html`<${Latest} changed=${JSON.stringify([me.organization.id, stats.data?.totals])} />`}`
      : !error && html`<${Skeleton} />`}
  <//>`;
}

const showsEvents = () => isShown({ path: paths.events, needs: 'events:read' });

function Figures({ stats, backlog }) {
  const { succeeded = 0, failed = 0, duration_ms } = stats?.totals ?? {};
  return html`<${Facts} across items=${[
    ['Success rate', html`<${Rate} good=${succeeded} bad=${failed} />`],
    ['Duration p50', html`<span class="figure">${atMost(duration_ms?.p50)}</span>`],
    ['Duration p95', html`<span class="figure">${atMost(duration_ms?.p95)}</span>`],
    ['Waiting', html`<span class="figure">${number(backlog.pending)}</span>`],
    ['Oldest due', html`<span class="figure"><${Time} value=${backlog.oldest_due_at} /></span>`],
  ]} />`;
}

// Rate is the share of successful attempts. It rounds down, so only a faultless time has 100 %.
function Rate({ good, bad }) {
  if (!(good + bad)) return html`<span class="figure">–</span>`;
  const percent = Math.floor(good / (good + bad) * 1000) / 10;
  return html`<span class="row"><span class="figure">${percent} %</span>${percent < 99 && html`<${Badge} status="failing" text="Below 99 %" />`}</span>`;
}

const why = { paused: 'Paused by a person', disabled: 'Disabled after failures', plan: 'The plan has no webhooks', queue_held: 'All sending is stopped' };

const columns = [
  { head: 'Why', main: true, size: 'xl',
    cell: (b) => html`<${Badge} status=${b.blocked_by ?? 'pending'} text=${why[b.blocked_by] ?? 'Until the next attempt is due'} />` },
  { head: 'Deliveries', size: 's', number: true, cell: (b) => number(b.pending) },
  { head: 'Subscriptions', size: 'm', number: true, wide: true, cell: (b) => number(b.subscriptions) },
  { head: 'Oldest due', size: 'm', cell: (b) => html`<${Time} value=${b.oldest_due_at} />` },
];

const Waiting = ({ all, blocked }) => html`<${Section} title="What waits, and why">
  <${Table} label="What waits, and why" list=${{ rows: blocked }} columns=${columns}
    rowKey=${(b) => b.blocked_by ?? ''} href=${(b) => whereTo(b.blocked_by, all)} />
<//>`;

// whereTo returns the page with the next step, or what was counted. Only operators release the queue or change a plan.
function whereTo(blocked, all) {
  if (blocked === 'queue_held' && isOperator()) return href(paths.system);
  if (blocked === 'plan' && isOperator() && !all) return href(paths.organization(session.get().me.organization.id));
  const where = all ? 'all' : '';
  if (!blocked && showsEvents()) return href(paths.events, { state: 'pending', audit: can('audit:read') ? 'with' : '', in: where });
  return href(paths.subscriptions, { status: blocked === 'paused' || blocked === 'disabled' ? blocked : '', pending: 'true', in: where });
}
