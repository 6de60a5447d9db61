// SendAgain recovers or redelivers what the list of events shows. The numbers come from the API's dry run.
import { html } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { ErrorBar } from '../../ui/state.js';
import { count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';

// acts are what can be done with the events of a state. The events of the other states are sent without an act, or not at all.
export const acts = { exhausted: 'recover', dropped: 'recover', delivered: 'redeliver' };

const deliveries = (n) => count(n, 'delivery', 'deliveries');

export function SendAgain({ filter, onDone, onClose }) {
  const act = acts[filter.state], path = `/webhooks/${act}/`, isRecovery = act === 'recover';
  const { data, error, reload } = useLoad((signal) => api.post(path, { ...filter, dry_run: true }, { signal }), []);
  const send = async () => {
    const done = await api.post(path, filter);
    await onDone();
    const n = done.deliveries + (isRecovery ? done.pending : 0);
    return `${isRecovery ? 'Recovered' : 'Redelivered'}. ${count(n, 'delivery is', 'deliveries are')} sent.`;
  };
  const waiting = isRecovery ? data?.pending : 0;
  return html`<${Confirm} title=${isRecovery ? 'Recover these events' : 'Redeliver these events'}
    disabled=${!data?.deliveries && !waiting} onConfirm=${send} onClose=${onClose}
    action=${data ? `${isRecovery ? 'Recover' : 'Redeliver'} ${deliveries(data.deliveries)}` : 'Counting…'}>
    <p>${isRecovery ? html`Do this when the receivers work again. Their subscriptions become healthy, except those that a person has paused.
      What has arrived since is not sent again.` : 'The events have arrived. They are sent once more, with the same ids.'}</p>
    ${data ? html`<ul class="preview" aria-live="polite">
      <li><strong class="strong">${deliveries(data.deliveries)}</strong> of ${count(data.events, 'event')}, to ${count(data.subscriptions, 'subscription')}</li>
      ${waiting > 0 && html`<li><strong class="strong">${deliveries(waiting)}</strong> that ${waiting === 1 ? 'waits' : 'wait'} now</li>`}
    </ul>${data.blocked_by === 'queue_held' && html`<p>All sending is stopped: all of this waits until it goes on.</p>`}`
      : !error && html`<p class="quiet" aria-busy="true">Counting…</p>`}
    <${ErrorBar} error=${error} retry=${reload} />
  <//>`;
}
