// Recover: the one act after a receiver was repaired. The numbers come from the API's dry run.
import { html, useState } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { TimeField } from '../../ui/form.js';
import { ErrorBar } from '../../ui/state.js';
import { Time, count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';

export function Recover({ subscription, onDone, onClose }) {
  const path = `/webhooks/subscriptions/${subscription.id}/recover/`;
  const [values, setValues] = useState({ since: '' });
  const [activate, setActivate] = useState(false);
  const chosen = { ...(values.since && { since: values.since }), ...(activate && { activate }) };
  const { data, error, loading, reload } = useLoad((signal) => api.post(path, { ...chosen, dry_run: true }, { signal }),
    [values.since, activate]);
  const isPaused = error?.code === 'paused';
  const form = { values, names: new Set(), errorOf: (name) => error?.fields?.[name], set: (name, value) => setValues({ [name]: value }) };
  const events = data ? data.deliveries + data.pending : 0;
  const recover = async () => {
    const done = await api.post(path, { ...chosen, since: data.since });
    await onDone?.();
    const all = done.deliveries + done.pending;
    if (done.blocked_by === 'queue_held') return `Recovered. ${count(all, 'event waits', 'events wait')} until sending goes on.`;
    return all ? `Recovered. ${count(all, 'event is', 'events are')} sent.` : 'Recovered. No event was missing.';
  };
  return html`<${Confirm} title="Recover after an outage" disabled=${!data || loading || error} onConfirm=${recover} onClose=${onClose}
    action=${!data ? 'Recover' : events ? `Recover ${count(events, 'event')}` : 'Recover without events'}>
    ${(isPaused || activate) && html`<label class="choice"><input type="checkbox" checked=${activate} onChange=${(e) => setActivate(e.target.checked)} />
      <span>Resume the subscription, although a person has paused it</span></label>`}
    <p>Do this when the receiver works again. The subscription becomes healthy, and this is sent:</p>
    ${data && !isPaused ? html`<ul class="preview" aria-live="polite" aria-busy=${loading}>
      ${data.pending > 0 && html`<li>
        <strong class="strong">${count(data.pending, 'delivery', 'deliveries')}</strong> that ${data.pending === 1 ? 'waits' : 'wait'} now</li>`}
      ${(data.deliveries > 0 || data.pending === 0)
        && html`<li><strong class="strong">${count(data.deliveries, 'event')}</strong> given up since <${Time} value=${data.since} form="log" /></li>`}
    </ul>${data.blocked_by === 'queue_held' && html`<p>All sending is stopped: all of this waits until it goes on.</p>`}`
      : !error && html`<p class="quiet" aria-busy="true">Counting…</p>`}
    <${ErrorBar} error=${isPaused ? null : error} retry=${reload} />
    <${TimeField} form=${form} name="since" label="Since" optional hint="Without a time: since the outage began." />
  <//>`;
}
