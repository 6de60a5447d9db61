// The dialogs before an act that sends or destroys: resume, discard, delete. Each reads the number that it concerns first.
import { html } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { ErrorBar } from '../../ui/state.js';
import { count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { navigate } from '../../router.js';
import { paths } from '../../paths.js';

const pathOf = ({ id }) => `/webhooks/subscriptions/${id}/`;

// usePending is the number of deliveries that wait now. Nothing can be confirmed before it is known.
function usePending(subscription) {
  const { data, error } = useLoad((signal) => api.get(pathOf(subscription), { signal }), []);
  return { waiting: data ? count(data.pending_deliveries, 'delivery', 'deliveries') : '…', disabled: !data, error };
}

export function Resume({ subscription, onDone, onClose }) {
  const { waiting, disabled, error } = usePending(subscription);
  const resume = async () => {
    await api.patch(pathOf(subscription), { is_active: true });
    await onDone();
    return `Resumed. ${waiting} ${waiting.startsWith('1 ') ? 'is' : 'are'} sent.`;
  };
  return html`<${Confirm} title="Resume this subscription?" action=${`Resume and send ${waiting}`} disabled=${disabled} onConfirm=${resume} onClose=${onClose}>
    <p>What waits is sent, oldest first.</p><${ErrorBar} error=${error} /><//>`;
}

export function Discard({ subscription, onDone, onClose }) {
  const { waiting, disabled, error } = usePending(subscription);
  const discard = async () => {
    const { deliveries } = await api.post(pathOf(subscription) + 'discard/', {});
    await onDone();
    return `Discarded ${count(deliveries, 'delivery', 'deliveries')}.`;
  };
  return html`<${Confirm} title="Discard what waits?" action=${`Discard ${waiting}`} typed="discard"
    danger disabled=${disabled} onConfirm=${discard} onClose=${onClose}>
    <p><strong class="strong">${waiting}</strong> to this subscription are dropped. The events stay. In the list of events,
      the state “Discarded” finds them, to send them after all.</p>
    <${ErrorBar} error=${error} /><//>`;
}

export function Delete({ subscription, onClose }) {
  const { waiting, disabled, error } = usePending(subscription);
  const remove = async () => {
    await api.delete(pathOf(subscription));
    navigate(paths.subscriptions, {}, { replace: true });
    return 'The subscription was deleted.';
  };
  return html`<${Confirm} title="Delete this subscription?" action="Delete subscription"
    typed=${subscription.url ? new URL(subscription.url).host : 'feed'} danger disabled=${disabled} onConfirm=${remove} onClose=${onClose}>
    <p>${subscription.url ? html`Nothing more is sent to <bdi class="strong">${subscription.url}</bdi>.`
      : 'Nobody can read the feed any more.'} <strong class="strong">${waiting}</strong> that
      wait are dropped. The signing secret is lost. This cannot be undone.</p>
    <${ErrorBar} error=${error} /><//>`;
}
