// The queue of all organizations: what waits, hold, release, discard.
import { html, useState } from '../ui/html.js';
import { Section } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge, TwoLines } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Form, TextField, useForm } from '../ui/form.js';
import { Bar } from '../ui/state.js';
import { tell } from '../ui/told.js';
import { Time, count, number } from '../ui/time.js';
import { api } from '../api.js';
import { href } from '../router.js';
import { can, actsEverywhere } from '../session.js';
import { paths } from '../paths.js';

const waiting = (queue) => count(queue.pending_deliveries, 'waiting delivery', 'waiting deliveries');

export function Queue({ queue, reload }) {
  const [open, setOpen] = useState(''); // the dialog
  const writes = can('platform:write');
  const act = async (name, body, say) => {
    const after = await api.post(`/queue/${name}/`, body);
    await reload();
    return say(after);
  };
  const close = () => setOpen('');
  const columns = [
    { head: 'Organization', main: true, cell: (q) => html`<${TwoLines} title=${q.organization_name}><bdi class="narrow-only">${q.url_host}</bdi><//>` },
    { head: 'Receiver', wide: true, cell: (q) => html`<span class="cut" title=${q.subscription_id}><bdi>${q.url_host}</bdi></span>` },
    { head: 'Waiting', size: 's', number: true, cell: (q) => number(q.pending) },
    { head: 'Oldest due', size: 'm', cell: (q) => html`<${Time} value=${q.oldest_due} />` },
  ];
  const largest = queue.pending.slice(0, 10);
  return html`<${Section} title="Queue"
    actions=${writes && html`<${Button} onClick=${() => setOpen(queue.held ? 'discard' : 'hold')}>${queue.held ? 'Discard deliveries…' : 'Hold queue…'}<//>`}>
    ${queue.held ? html`<${Bar} tone="warning" title="The queue is held: nothing is sent"
        action=${writes && html`<${Button} kind="primary" onClick=${() => setOpen('release')}>Release queue…<//>`}>
        <p>Since <${Time} value=${queue.held_since} form="exact" />.
        ${queue.reason && html`${' '}Reason: <bdi>${queue.reason}</bdi>`}</p><//>`
      : html`<p><${Badge} status="healthy" text="Sending" /></p>`}
    <p>${waiting(queue)} of ${count(queue.pending_subscriptions, 'subscription')}, of all organizations.
      ${queue.pending.length > largest.length && html`${' '}These have the most:`}</p>
    ${largest.length > 0 && html`<${Table} label="Largest queues" list=${{ rows: largest }} columns=${columns} rowKey=${(q) => q.subscription_id}
      href=${(q) => (actsEverywhere() ? href(paths.subscription(q.subscription_id), { org: q.organization_id })
        : href(paths.organization(q.organization_id)))} />`}
    ${open === 'hold' && html`<${Hold} queue=${queue} act=${act} onClose=${close} />`}
    ${open === 'release' && html`<${Confirm} title="Release the queue?"
      action="Release queue" onClose=${close}
      onConfirm=${() => act('release', undefined, (after) => `Released ${count(after.released, 'delivery', 'deliveries')}.`)}>
      <p>${waiting(queue)} of ${count(queue.pending_subscriptions, 'subscription')}, and what comes after them, are sent. What waits for
        a paused or failing subscription, or for a plan with webhooks, waits on.</p><//>`}
    ${open === 'discard' && html`<${Confirm} title="Discard the held deliveries?" action="Discard and release" typed="discard" danger onClose=${close}
      onConfirm=${() => act('discard', undefined, (after) => `Discarded ${count(after.dropped, 'delivery', 'deliveries')}. The queue is released.`)}>
      <p>Of ${waiting(queue)}, those from before the hold are never sent. Newer ones are sent. This cannot be undone.</p>
      <p>The events stay, so each can be sent again by hand.</p><//>`}
  <//>`;
}

function Hold({ queue, act, onClose }) {
  const form = useForm({ reason: '' }, async ({ reason }) => {
    const said = await act('hold', reason.trim() ? { reason: reason.trim() } : {}, () => 'Held the queue.');
    onClose();
    tell(said);
  });
  return html`<${Dialog} title="Hold the queue of all organizations?" onClose=${onClose}>
    <p>Nothing is sent to any receiver until you release the queue. ${waiting(queue)} stay, and new ones wait behind them.</p>
    <${Form} form=${form} submit="Hold queue">
      <${TextField} form=${form} name="reason" label="Reason" optional autofocus hint="Others see it here and in the audit log." /><//>
  <//>`;
}
