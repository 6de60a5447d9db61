// What needs attention: the instance first, then the subscriptions, each with what to do.
import { html, useState } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Bar } from '../../ui/state.js';
import { Icon } from '../../ui/icon.js';
import { Address, Badge, subscriptionStatus } from '../../ui/badge.js';
import { Button, LinkButton } from '../../ui/button.js';
import { Time, count, number } from '../../ui/time.js';
import { href } from '../../router.js';
import { can, canSwitch, isOperator, session, useSession } from '../../session.js';
import { needsAttention, paths } from '../../paths.js';
import { wordsOf } from '../subscription/mend.js';
import { Recover } from '../subscription/recover.js';

export function Attention({ state, all, reload }) {
  const { problems, backlog: { statuses } } = state;
  const { me } = useSession();
  const [shown, setShown] = useState(10);
  const [recovering, setRecovering] = useState(null);
  const bars = warnings(state, all, me.organization);
  if (!bars.length && !state.count) {
    return statuses.healthy > 0 && html`<p class="row one-line"><${Icon} name="ok" class="success" />
      <span>${statuses.healthy === 1 ? 'The subscription is healthy.' : `All ${count(statuses.healthy, 'subscription')} are healthy.`} Nothing needs attention.</span></p>`;
  }
  return html`<${Section} title=${`Needs attention (${number(bars.length + state.count)})`}>
    ${bars}
    <ul class="problems" aria-label="Problems" data-rows>${problems.slice(0, shown).map((s) => html`<${Problem} key=${s.id} subscription=${s} all=${all} recover=${() => setRecovering(s)} />`)}</ul>
    ${problems.length > shown && html`<div><${Button} onClick=${() => setShown(shown + 20)}>Show more<//></div>`}
    ${state.count > problems.length && shown >= problems.length && html`<${Others} n=${state.count - problems.length} total=${state.count} all=${all} />`}
    ${recovering && html`<${Recover} subscription=${recovering} organization=${all ? actingIn(recovering) : undefined} onDone=${reload} onClose=${() => setRecovering(null)} />`}
  <//>`;
}

// Others leads to the subscriptions that are not in the list.
const Others = ({ n, total, all }) => html`<p class="row small"><span class="quiet">${count(n, 'more subscription needs', 'more subscriptions need')} attention.</span>
  <a href=${href(paths.subscriptions, { status: needsAttention, in: all ? 'all' : '' })}>Show all ${number(total)}</a></p>`;

const actingIn = ({ organization_id }) => (organization_id === session.get().home.organization.id ? '' : organization_id);

function Problem({ subscription: s, all, recover }) {
  const acts = !all || actingIn(s) === '' || canSwitch();
  const address = html`${all && html`<strong class="cut"><bdi>${s.organization_name}</bdi></strong>`}
    <span class="cut"><${Address} url=${s.url} /></span>`;
  return html`<li>
    <${Badge} status=${subscriptionStatus(s)} />
    <div class="grow">
      ${acts ? html`<a class="row-link two-lines" href=${href(paths.subscription(s.id), all ? { org: actingIn(s) } : {})} title=${s.url}>${address}</a>` : html`<div class="two-lines">${address}</div>`}
      <p class="clamp" title=${s.last_error}><bdi>${wordsOf(s.last_error) ?? 'No error is known.'}</bdi></p>
      <p class="small quiet">${s.failing_since ? html`Failing since <${Time} value=${s.failing_since} form="log" />` : html`Disabled <${Time} value=${s.disabled_at} />`}
        ${s.pending_deliveries > 0 && ` · ${count(s.pending_deliveries, 'delivery waits', 'deliveries wait')}`}</p>
    </div>
    ${acts && can('webhooks:write') && html`<${Button} onClick=${recover}>Recover…<//>`}
  </li>`;
}

// warnings are bars about the instance for operators, and about the plan for its organization.
function warnings({ queue, system, backlog }, all, organization) {
  const plan = backlog.blocked.find((b) => b.blocked_by === 'plan');
  const held = queue?.held || backlog.blocked.some((b) => b.blocked_by === 'queue_held');
  const toSystem = system && html`<${LinkButton} href=${href(paths.system)}>Open System<//>`;
  const toPlan = isOperator() && (all ? html`<${LinkButton} href=${href(paths.subscriptions, { in: 'all' })}>Show subscriptions<//>`
    : html`<${LinkButton} href=${href(paths.organization(organization.id))}>Open organization<//>`);
  return [
    held && html`<${Bar} key="queue" tone="warning" title="The queue is held: nothing is sent" action=${toSystem}>
      <p>${queue?.held ? html`Since <${Time} value=${queue.held_since} />${queue.reason && html`: <bdi>${queue.reason}</bdi>`}. Release it to send ${count(queue.pending_deliveries, 'delivery', 'deliveries')}.`
        : 'An operator has stopped all sending. Deliveries wait.'}</p><//>`,
    plan && html`<${Bar} key="plan" tone="warning" title=${all ? 'Deliveries wait for a plan with webhooks' : html`The plan of <bdi>${organization.name}</bdi> has no webhooks`} action=${toPlan}>
      <p>${count(plan.pending, 'delivery waits', 'deliveries wait')} for ${count(plan.subscriptions, 'subscription')}${all && ', which the list marks “Not in the plan”'}. A plan with webhooks sends them.</p><//>`,
    system?.clock.trusted === false && html`<${Bar} key="clock" tone="warning" title="The clock of the server may be wrong" action=${toSystem}><p>Look at the time of the machine.</p><//>`,
    system?.deliveries.warning && !held && html`<${Bar} key="system" tone="warning" title="Deliveries are late" action=${toSystem}><p><bdi>${system.deliveries.warning}</bdi></p><//>`,
  ].filter(Boolean);
}
