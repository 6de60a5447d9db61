// Publish an event by hand.
import { html, useEffect, useRef, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Form, TextField, useForm } from '../ui/form.js';
import { TokensField } from '../ui/tokens.js';
import { ObjectField, checkObject } from '../ui/object_field.js';
import { LinkButton } from '../ui/button.js';
import { Bar } from '../ui/state.js';
import { count } from '../ui/time.js';
import { Curl } from '../ui/curl.js';
import { api } from '../api.js';
import { href } from '../router.js';
import { isOperator, linkTo, session } from '../session.js';
import { paths } from '../paths.js';
import { useEventTypes } from './subscription/fields.js';

const example = '{\n  "order": 1001,\n  "total": "12.50"\n}';

export function EventNew() {
  const types = useEventTypes();
  const [published, setPublished] = useState(null);
  const made = useRef({}); // the idempotency key of this page, and the event for which it is
  const form = useForm({ type: '', data: example, idempotency_key: '' }, async (values) => {
    setPublished(null);
    setPublished(await publish(values, made));
  });
  const filled = useRef(example); // the data that nobody has typed
  const fill = (type) => {
    if (!type?.example || form.values.data !== filled.current) return;
    filled.current = JSON.stringify(type.example, null, 2);
    form.set('data', filled.current);
  };
  const answer = useRef(null);
  const key = form.values.idempotency_key.trim();
  useEffect(() => { if (published) answer.current.focus(); }, [published]);

  return html`<${Page} title="Publish an event" crumbs=${[['Events', href(paths.events)]]}>
    <div class="columns two">
      <${Form} form=${form} submit="Publish event" cancel=${href(paths.events)}>
        <${TokensField} form=${form} name="type" label="Type" single types=${types} take=${fill} required placeholder="order.paid" maxlength="128"
          hint="Lower-case words with dots between them. Subscriptions choose events by type." />
        <${ObjectField} form=${form} name="data" label="Data" hint="A JSON object, at most 256 KiB. Receivers get it as it is." required />
        <${TextField} form=${form} name="idempotency_key" label="Idempotency key" optional mono maxlength="255"
          hint="The same key never publishes a second event. Without one, this page makes one: a double click publishes once." />
      <//>
      <div class="stack">
        <div ref=${answer} tabindex="-1" class="answer-column" aria-live="polite">${published && html`<${Answer} published=${published} />`}</div>
        <h2>The same with curl</h2>
        <${Curl} path="/events/" headers=${key ? [`Idempotency-Key: ${key}`] : []}
          body=${`{"type": ${JSON.stringify(form.values.type.trim() || 'order.paid')}, "data": ${form.values.data}}`} />
      </div>
    </div>
  <//>`;
}

// publish sends the data as it was typed, so numbers keep their digits. Repeating the same event gets the first answer again.
async function publish({ type, data, idempotency_key: given }, made) {
  checkObject('data', data);
  const event = JSON.stringify([type, data, session.get().me.organization.id]);
  if (made.current.event !== event) made.current = { event, key: 'console-' + randomKey() };
  const key = given.trim() || made.current.key;
  const answer = await api.post('/events/', `{"type":${JSON.stringify(type.trim())},"idempotency_key":${JSON.stringify(key)},"data":${data}}`);
  made.current = {}; // the next click is meant: it publishes another event
  return answer;
}

const randomKey = () => [...crypto.getRandomValues(new Uint8Array(12))].map((n) => n.toString(16).padStart(2, '0')).join('');

// Answer says in words what the API has answered.
function Answer({ published: { id, type, deliveries, held, notice } }) {
  const see = html`<div class="row"><${LinkButton} kind="primary" href=${href(paths.event(id))}>${deliveries ? 'See it arrive' : 'Show the event'}<//></div>`;
  if (notice === 'no_subscription') {
    return html`<${Bar} tone="warning" title="Published, and sent nowhere"><p>No subscription wants the type <code>${type}</code>.</p>
      <div class="row"><${LinkButton} href=${linkTo(paths.subscriptionNew, 'webhooks:write')}>New subscription<//></div>${see}<//>`;
  }
  if (notice === 'unknown_type') {
    return html`<${Bar} tone="warning" title=${`Published for ${count(deliveries, 'subscription')}`}>
      <p>The catalogue of event types does not have <code>${type}</code>. Is it misspelt?</p>${see}<//>`;
  }
  if (notice === 'in_feed') {
    return html`<${Bar} tone="success" title="Published"><p>Nothing is sent: a program reads the event from a feed.</p>${see}<//>`;
  }
  if (notice === 'all_filtered') {
    return html`<${Bar} tone="warning" title="Published, and sent nowhere"><p>It passes the filter of no subscription that wants its type.</p>${see}<//>`;
  }
  if (notice === 'plan_capability_required') {
    return html`<${Bar} tone="warning" title="Published, and sent nowhere">
      <p>The plan of this organization has no webhooks. ${isOperator() ? '' : 'The provider of this service can change it.'}</p>
      ${isOperator() && html`<div class="row">
        <${LinkButton} href=${href(paths.organization(session.get().me.organization.id), { org: '' })}>Change the plan<//></div>`}${see}<//>`;
  }
  const waits = held === 0 ? '' : held === deliveries ? (held === 1 ? 'It is disabled: the delivery waits until it is active again.'
    : 'All of them are disabled: their deliveries wait until they are active again.')
    : `${held} of them ${held === 1 ? 'is disabled: its delivery waits until it is active again'
      : 'are disabled: their deliveries wait until they are active again'}.`;
  return html`<${Bar} tone=${held ? 'warning' : 'success'} title=${`Published for ${count(deliveries, 'subscription')}`}>
    <p>The event and its ${deliveries === 1 ? 'delivery is' : 'deliveries are'} on disk. ${waits}</p>${see}<//>`;
}
