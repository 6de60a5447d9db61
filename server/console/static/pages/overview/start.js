// The first steps of a new instance, or of a customer who came with a link of the portal. Each is marked when it is done.
import { html, useLayoutEffect, useRef, useState } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Icon } from '../../ui/icon.js';
import { Button, LinkButton } from '../../ui/button.js';
import { Form, useForm } from '../../ui/form.js';
import { Secret } from '../../ui/secret.js';
import { api } from '../../api.js';
import { href, navigate } from '../../router.js';
import { settings } from '../../settings.js';
import { can, linkTo, session } from '../../session.js';
import { paths } from '../../paths.js';
import { AddressField, bodyOf, empty, useEventTypes } from '../subscription/fields.js';
import { Programs } from '../subscription/programs.js';
import { SendTest, bodyOf as bodyOfTest } from '../subscription/test.js';

const link = (text, path, needs) => (kind) => can(needs) && html`<${LinkButton} kind=${kind} href=${href(path)}>${text}<//>`;

const steps = [
  ['Create a subscription', 'The address that receives events, and the types that it wants.',
    link('New subscription', paths.subscriptionNew, 'webhooks:write')],
  ['Create an API key', 'Your application publishes events with it.', link('New API key', paths.keyNew, 'api_keys:write')],
  ['Publish an event', 'Watch it arrive. After that, your application does this.', link('Publish an event', paths.eventNew, 'events:write')],
];

const eventOf = ({ id }) => linkTo(paths.event(id), 'events:read');

// stepsOfPortal are those of a customer: the product publishes the events. made is an endpoint whose secret is shown.
const stepsOfPortal = ({ endpoint, test, event } = {}, form, secret) => [
  ['Add an endpoint', endpoint ? html`Events go to <a href=${href(paths.subscription(endpoint.id))}><bdi>${endpoint.url}</bdi></a>.`
    : 'Your server gets events of all types, until you choose some.',
    session.get().me.plan.webhooks ? () => null : link('Add endpoint', paths.subscriptionNew, 'webhooks:write'), secret ?? (!endpoint && form)],
  ['Send a test', test && !test.states.delivered ? html`The last test failed. ${eventOf(test) && html`<a href=${eventOf(test)}>See why</a>`}`
    : 'See what your server answers, before the first event.',
    (kind) => endpoint && !secret && can('webhooks:write') && html`<${Test} kind=${kind} subscription=${endpoint} />`,
    endpoint && html`<details class="more-options"><summary>A receiver for your server</summary><${Programs} /></details>`],
  ['Wait for the first event', event ? html`<a href=${eventOf(event)}>${event.type}</a> has arrived.`
    : html`<bdi>${settings.name}</bdi> sends it when something happens. This page shows when it arrives.`, () => null],
];

// Start is shown until every step is done. It stays until the page is left, so one sees the last mark. A customer who adds an endpoint gets
// its secret, then the test.
export function Start({ state: { steps: known, first, count }, reload }) {
  const open = useRef(false), list = useRef(null);
  const [made, setMade] = useState(null);
  const [saved, setSaved] = useState(false);
  useLayoutEffect(() => { if (made) list.current.querySelector('.secret .button, li > .button')?.focus(); }, [made, saved]);
  open.current ||= known.some((d) => d === false);
  if (!made && (!open.current || count > 0)) return null; // who has a problem is no beginner
  const done = made ? [true, ...known.slice(1)] : known, next = done.indexOf(false);
  const secret = made && !saved && html`<${Secret} title="Save the signing secret" value=${made.secret} onDone=${() => setSaved(true)} />`;
  const form = can('webhooks:write') && html`<${AddEndpoint} onMade=${(endpoint) => { setMade(endpoint); reload(); }} />`;
  const shown = session.get().portal ? stepsOfPortal({ ...first, ...(made && { endpoint: made }) }, form, secret) : steps;
  return html`<${Section} title=${done.every((d) => d) ? 'All three steps are done' : `Three steps to the first ${shown === steps ? 'delivery' : 'event'}`}>
    <ol class="problems" ref=${list}>${shown.map(([title, text, action, more], i) => html`<li key=${title}>
      <span class="badge"><${Icon} name=${done[i] ? 'ok' : 'circle'} class=${done[i] ? 'success' : 'quiet'} />
        <span class=${done[i] ? undefined : 'quiet'}>${done[i] ? 'Done' : `Step ${i + 1}`}</span></span>
      <div class="stack tight"><h3>${title}</h3><p class="quiet">${text}</p>${more}</div>
      ${!done[i] && action(i === next ? 'primary' : '')}
    </li>`)}</ol>
  <//>`;
}

// AddEndpoint needs an address alone. The full form keeps what was typed.
function AddEndpoint({ onMade }) {
  const form = useForm(empty, async (values) => onMade(await api.post('/webhooks/subscriptions/', bodyOf(values))));
  return html`<${Form} form=${form} submit="Add endpoint" free beside="More settings" cancel=${href(paths.subscriptionNew, { url: form.values.url })}>
    <${AddressField} form=${form} /><//>`;
}

function Test({ kind, subscription }) {
  const types = useEventTypes().filter((t) => t.example);
  const [asking, setAsking] = useState(false);
  const send = async (type) => {
    const attempt = await api.post(`/webhooks/subscriptions/${subscription.id}/test/`, bodyOfTest(type));
    navigate(paths.subscription(subscription.id), { attempt: attempt.id });
  };
  return html`<${Button} kind=${kind} icon="send" onClick=${() => setAsking(true)}>Send test…<//>
    ${asking && html`<${SendTest} ...${{ subscription, types, send }} onClose=${() => setAsking(false)} />`}`;
}
