// What is wrong with a subscription, in words, with the button that mends it.
import { html } from '../../ui/html.js';
import { Bar } from '../../ui/state.js';
import { Button } from '../../ui/button.js';
import { subscriptionStatus } from '../../ui/badge.js';
import { Time, count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href } from '../../router.js';
import { can, isOperator, useSession } from '../../session.js';
import { paths } from '../../paths.js';
import { mendOf, wordsOf } from './mend.js';

// useProof is what a recovery would send once the newest attempt to a failing subscription, such as a test, has arrived; else null.
// sent grows when something was sent.
export function useProof(s, sent) {
  const path = `/webhooks/subscriptions/${s?.id}/`, fails = Boolean(s) && ['failing', 'disabled'].includes(subscriptionStatus(s));
  return useLoad(async (signal) => {
    if (!fails || !can('webhooks:write')) return null;
    const { data: [newest] } = await api.get(path + 'deliveries/', { signal, query: { limit: 1 } });
    return newest?.outcome === 'succeeded' ? api.post(path + 'recover/', { dry_run: true }, { signal }) : null;
  }, [path, fails, sent, s?.last_failure_at]).data;
}

// Health says why nothing is sent or what fails, and has the button that mends it: the main one when there is a proof.
export function Health({ subscription: s, proof, actions }) {
  const waits = s.pending_deliveries > 0 ? `${count(s.pending_deliveries, 'delivery waits', 'deliveries wait')}.` : 'No delivery waits.';
  const writes = can('webhooks:write');
  const events = proof && proof.deliveries + proof.pending;
  const recover = writes && html`<${Button} kind=${proof && 'primary'} onClick=${() => actions.open('recover')}>
    ${events ? `Recover ${count(events, 'event')}…` : 'Recover…'}<//>`;
  switch (s.blocked_by) {
    case 'paused':
      return html`<${Bar} title=${html`<bdi>${wordsOf(s.last_error)}</bdi>: nothing is sent`}
        action=${writes && html`<${Button} kind="primary" onClick=${actions.resume}>Resume<//>`}>
        <p>${s.disabled_at && html`Since <${Time} value=${s.disabled_at} />. `}${waits} New events wait, too.</p><//>`;
    case 'disabled':
      return html`<${Bar} tone="danger" title=${`Disabled after ${count(s.consecutive_failures, 'failure')} in a row: nothing is sent`} action=${recover}>
        <${LastError} subscription=${s} /><p>${waits} ${proof ? works : 'Repair the receiver, send a test, then recover.'}</p><//>`;
    case 'plan':
      return html`<${NoWebhooks} waits=${waits} />`;
    case 'queue_held':
      return html`<${Bar} tone="warning" title="All sending is stopped for now"><p>${waits} ${isOperator()
        ? html`The queue is held. <a href=${href(paths.system, { org: '' })}>Release it on the page System</a>.` : 'They are sent when it goes on.'}</p><//>`;
    default:
      return s.status === 'failing' && html`<${Bar} tone="warning" title=${`Failing: ${count(s.consecutive_failures, 'failure')} in a row`} action=${recover}>
        <${LastError} subscription=${s} />
        <p>${waits} ${proof ? works : html`One delivery at a time is tried. When a test arrives, recover: this sends what
        ${s.pending_deliveries > 0 && ' waits and what'} was given up.`}</p><//>`;
  }
}

const works = 'The receiver works again: the newest attempt has arrived. Recover to send what it has missed.';

const LastError = ({ subscription: s }) => html`<p><bdi class="strong" title=${s.last_error}>${wordsOf(s.last_error)}</bdi>
  ${s.failing_since && html`, since <${Time} value=${s.failing_since} form="log" />`}.
  ${' '}${mendOf(s)}</p>`;

// NoWebhooks says that the plan of the organization has no webhooks, and who can change that.
export function NoWebhooks({ waits }) {
  const { plan, organization } = useSession().me;
  return html`<${Bar} tone="warning" title=${html`The plan <bdi>${plan.name}</bdi> has no webhooks: nothing is sent`}><p>${waits} ${isOperator()
    ? html`Change the plan of <a href=${href(paths.organization(organization.id), { org: '' })}>the organization</a>.`
      : 'Ask the provider of this service for a plan that has them.'}</p><//>`;
}
