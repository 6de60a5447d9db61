// The first steps of a new instance, or of a customer who came with a link of the portal. Each is marked when it is done.
import { html, useRef, useState } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Icon } from '../../ui/icon.js';
import { Button, LinkButton } from '../../ui/button.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href, navigate } from '../../router.js';
import { settings } from '../../settings.js';
import { can, session } from '../../session.js';
import { paths } from '../../paths.js';
import { SendTest, bodyOf } from '../subscription/test.js';

const link = (text, path, needs) => (kind) => can(needs) && html`<${LinkButton} kind=${kind} href=${href(path)}>${text}<//>`;

const steps = [
  ['Create a subscription', 'The address that receives events, and the types that it wants.',
    link('New subscription', paths.subscriptionNew, 'webhooks:write')],
  ['Create an API key', 'Your application publishes events with it.', link('New API key', paths.keyNew, 'api_keys:write')],
  ['Publish an event', 'Watch it arrive. After that, your application does this.', link('Publish an event', paths.eventNew, 'events:write')],
];

// stepsOfPortal are those of a customer: the product publishes the events.
const stepsOfPortal = ({ endpoint, test, event } = {}) => [
  ['Add an endpoint', 'Your server’s address, and the types of events that it wants.',
    link('Add endpoint', paths.subscriptionNew, 'webhooks:write')],
  ['Send a test', test && !test.states.delivered ? html`The last test failed. <a href=${href(paths.event(test.id))}>See why</a>`
    : 'See what your server answers, before the first event.',
    (kind) => endpoint && can('webhooks:write') && html`<${Test} kind=${kind} subscription=${endpoint} />`],
  ['Wait for the first event', event ? html`<a href=${href(paths.event(event.id))}>${event.type}</a> has arrived.`
    : html`<bdi>${settings.name}</bdi> sends it when something happens. This page shows when it arrives.`, () => null],
];

// Start is shown until every step is done. It stays until the page is left, so one sees the last mark.
export function Start({ state: { steps: done, first, count } }) {
  const open = useRef(false);
  open.current ||= done.some((d) => d === false);
  if (!open.current || count > 0) return null; // who has a problem is no beginner
  const next = done.indexOf(false);
  const shown = session.get().portal ? stepsOfPortal(first) : steps;
  return html`<${Section} title=${done.every((d) => d) ? 'All three steps are done' : `Three steps to the first ${shown === steps ? 'delivery' : 'event'}`}>
    <ol class="problems">${shown.map(([title, text, action], i) => html`<li key=${title}>
      <span class="badge"><${Icon} name=${done[i] ? 'ok' : 'circle'} class=${done[i] ? 'success' : 'quiet'} />
        <span class=${done[i] ? undefined : 'quiet'}>${done[i] ? 'Done' : `Step ${i + 1}`}</span></span>
      <div class="grow"><h3>${title}</h3><p class="quiet">${text}</p></div>
      ${!done[i] && action(i === next ? 'primary' : '')}
    </li>`)}</ol>
  <//>`;
}

// Test sends a test, and goes to the answer.
function Test({ kind, subscription }) {
  const { data } = useLoad((signal) => api.get('/event-types/', { signal }), []);
  const [asking, setAsking] = useState(false);
  const send = async (type) => {
    const attempt = await api.post(`/webhooks/subscriptions/${subscription.id}/test/`, bodyOf(type));
    navigate(paths.subscription(subscription.id), { attempt: attempt.id });
  };
  return html`<${Button} kind=${kind} icon="send" onClick=${() => setAsking(true)}>Send test…<//>
    ${asking && html`<${SendTest} ...${{ subscription, send }} types=${(data?.data ?? []).filter((t) => t.example)} onClose=${() => setAsking(false)} />`}`;
}
