// What needs attention: the instance first, then the subscriptions, each with what to do.
import { html, named, useState } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Bar } from '../../ui/state.js';
import { Icon } from '../../ui/icon.js';
import { Table } from '../../ui/table.js';
import { Address, Badge, subscriptionStatus } from '../../ui/badge.js';
import { Button, LinkButton } from '../../ui/button.js';
import { Time, count, number } from '../../ui/time.js';
import { href } from '../../router.js';
import { actingIn, canSwitch, isOperator, useSession } from '../../session.js';
import { needsAttention, paths } from '../../paths.js';
import { mendOf, wordsOf } from '../subscription/mend.js';

export function Attention({ state, all }) {
  const { problems, backlog: { statuses } } = state;
  const { me } = useSession();
  const [shown, setShown] = useState(8); // so many leave room for the chart on the first screen
  const bars = warnings(state, all, me.organization);
  if (!bars.length && !state.count) {
    return statuses.healthy > 0 && state.steps[2] !== false && html`<p class="row one-line"><${Icon} name="ok" class="success" />
      <span>${statuses.healthy === 1 ? named('The subscription is healthy.')
        : `All ${count(statuses.healthy, 'subscription')} are healthy.`} Nothing needs attention.</span></p>`;
  }
  return html`<${Section} title=${`Needs attention (${number(bars.length + state.count)})`}>
    ${bars}
    ${problems.length > 0 && html`<${Table} label="Problems" list=${{ rows: problems.slice(0, shown) }}
      columns=${columnsOf(all)}
      href=${(s) => (mayAct(s, all) ? href(paths.subscription(s.id), all ? { org: actingIn(s.organization_id) } : {}) : undefined)} />`}
    ${problems.length > shown && html`<div><${Button} onClick=${() => setShown(shown + 20)}>Show more<//></div>`}
    ${state.count > problems.length && shown >= problems.length && html`<${Others} n=${state.count - problems.length} total=${state.count} all=${all} />`}
  <//>`;
}

// Others leads to the subscriptions that are not in the list.
const Others = ({ n, total, all }) => html`<p class="row small">
  <span class="quiet">${count(n, 'more subscription needs', 'more subscriptions need')} attention.</span>
  <a href=${href(paths.subscriptions, { status: needsAttention, in: all ? 'all' : '' })}>Show all ${number(total)}</a></p>`;

const mayAct = (s, all) => !all || actingIn(s.organization_id) === '' || canSwitch();

const Name = ({ subscription: s }) => html`<bdi class="strong" title=${s.organization_name}>${s.organization_name}</bdi>`;

const LastError = ({ subscription: s }) => html`<span class="cut" title=${[wordsOf(s.last_error), mendOf(s)].filter(Boolean).join('. ')}>
  <bdi>${wordsOf(s.last_error) ?? 'No error is known'}</bdi></span>`;

// columnsOf are one line for each problem. Its page says why, sends a test, and then recovers. On a phone, the address has the rest above and below it.
const columnsOf = (all) => [
  { head: 'Status', size: 's', wide: true, cell: (s) => html`<${Badge} status=${subscriptionStatus(s)} />` },
  all && { head: 'Customer', wide: true, cell: (s) => html`<span class="cut"><${Name} subscription=${s} /></span>` },
  { head: 'Address', main: true, cell: (s) => html`<span class="two-lines">
    <span class="narrow-only cut"><${Badge} status=${subscriptionStatus(s)} />${all && html` <${Name} subscription=${s} />`}</span>
    <span class="cut" title=${s.url}><${Address} url=${s.url} /></span>
    <span class="narrow-only small"><${LastError} subscription=${s} /> · <${Time} value=${s.failing_since ?? s.disabled_at} />
      ${' '}· ${number(s.pending_deliveries)} wait</span></span>` },
  { head: 'Last error', size: 'l', wide: true, cell: (s) => html`<${LastError} subscription=${s} />` },
  { head: 'Since', size: 's', wide: true, cell: (s) => html`<${Time} value=${s.failing_since ?? s.disabled_at} />` },
  { head: 'Waiting', size: 's', number: true, wide: true, cell: (s) => number(s.pending_deliveries) },
].filter(Boolean);

// warnings are bars about the instance for operators, and about the plan for its organization.
function warnings({ queue, system, backlog }, all, organization) {
  const plan = backlog.blocked.find((b) => b.blocked_by === 'plan');
  const held = queue?.held || backlog.blocked.some((b) => b.blocked_by === 'queue_held');
  const toSystem = system && html`<${LinkButton} href=${href(paths.system)}>Open System<//>`;
  const toPlan = isOperator() && (all ? html`<${LinkButton} href=${href(paths.subscriptions, { in: 'all' })}>Show subscriptions<//>`
    : html`<${LinkButton} href=${href(paths.organization(organization.id))}>Open organization<//>`);
  return [
    held && html`<${Bar} key="queue" tone="warning" title=${isOperator() ? 'The queue is held: nothing is sent' : 'Nothing is sent for now'} action=${toSystem}>
      <p>${queue?.held ? html`Since <${Time} value=${queue.held_since} />
        ${queue.reason && html`: <bdi>${queue.reason}</bdi>`}. ${count(queue.pending_deliveries, 'delivery waits', 'deliveries wait')}.`
        : 'All sending is stopped. Deliveries wait.'}</p><//>`,
    plan && html`<${Bar} key="plan" tone="warning" title=${all ? 'Deliveries wait for a plan with webhooks'
      : html`The plan of <bdi>${organization.name}</bdi> has no webhooks`} action=${toPlan}>
      <p>${count(plan.pending, 'delivery waits', 'deliveries wait')} for ${count(plan.subscriptions, 'subscription')}
        ${all && ', which the list marks “Not in the plan”'}. A plan with webhooks sends them.</p><//>`,
    system?.clock.trusted === false
      && html`<${Bar} key="clock" tone="warning" title="The clock of the server may be wrong" action=${toSystem}><p>Look at the time of the machine.</p><//>`,
    system?.deliveries.warning && !held
      && html`<${Bar} key="system" tone="warning" title="Deliveries are late" action=${toSystem}><p><bdi>${system.deliveries.warning}</bdi></p><//>`,
  ].filter(Boolean);
}
