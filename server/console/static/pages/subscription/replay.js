// Replay: send the events of a period that the subscription has not received. The numbers come from the API's dry run.
import { html, useState } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { SelectField, TimeField } from '../../ui/form.js';
import { TokensField } from '../../ui/tokens.js';
import { ErrorBar } from '../../ui/state.js';
import { count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { useEventTypes } from './fields.js';

const reasons = {
  exhausted: 'given up, because all attempts failed',
  plan: 'the plan had no webhooks',
  type_added: 'the subscription did not want the type then',
};
const day = 864e5;

export function Replay({ subscription, onDone, onClose }) {
  const path = `/webhooks/subscriptions/${subscription.id}/replay/`;
  const types = useEventTypes();
  const [values, setValues] = useState(() => ({ since: new Date(Math.floor(Date.now() / 6e4) * 6e4 - day).toISOString(),
    until: '', only: 'all', event_types: [] }));
  const { since, until, only, event_types } = values;
  const body = { since, only, ...(until && { until }), ...(event_types.length && { event_types }) };
  const { data, error, loading } = useLoad((signal) => api.post(path, { ...body, dry_run: true }, { signal }), [JSON.stringify(body)]);
  const errorOf = (name) => Object.entries(error?.fields ?? {}).find(([f]) => f.split('.')[0] === name)?.[1];
  const form = { values, names: new Set(), errorOf, set: (name, value) => setValues((v) => ({ ...v, [name]: value })) };
  const replay = async () => {
    const done = await api.post(path, body);
    await onDone?.();
    return `${count(done.deliveries, 'missed event is', 'missed events are')} sent.`;
  };
  return html`<${Confirm} title="Replay missed events" disabled=${!data?.deliveries || loading || error} onConfirm=${replay} onClose=${onClose}
    action=${data ? `Replay ${count(data.deliveries, 'event')}` : 'Replay'}>
    <p>This sends the events of a period that match this subscription and have not arrived. What waits already is not sent twice.</p>
    <div class="stack">
    <div class="pair"><${TimeField} form=${form} name="since" label="Since" required /><${TimeField} form=${form} name="until" label="Until" optional /></div>
    <${SelectField} form=${form} name="only" label="Which events" options=${[['all', 'All that have not arrived'],
      ['failed', 'Those that were given up'], ['missed', 'Those that never had a delivery']]} />
    <${TokensField} form=${form} name="event_types" label="Event types" placeholder="All" types=${types} />
    </div>
    ${data ? html`<div aria-live="polite" aria-busy=${loading}>${data.deliveries === 0 ? html`<p>No event of this period is missing.</p>`
      : html`<ul class="preview">${Object.entries(reasons).filter(([key]) => data.reasons[key]).map(([key, text]) => html`<li key=${key}>
        <strong class="strong">${count(data.reasons[key], 'event')}</strong>: ${text}</li>`)}</ul>`}</div>`
      : !error && html`<p class="quiet" aria-busy="true">Counting…</p>`}
    ${!Object.keys(error?.fields ?? {}).length && html`<${ErrorBar} error=${error} />`}
  <//>`;
}
