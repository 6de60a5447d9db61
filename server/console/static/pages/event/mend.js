// The advice of an explanation as a button: it asks with the number that it concerns, and does it.
import { html, named, useState } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { LinkButton } from '../../ui/button.js';
import { ErrorBar } from '../../ui/state.js';
import { Tag } from '../../ui/badge.js';
import { Time, count } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href } from '../../router.js';
import { can, isOperator, linkTo } from '../../session.js';
import { paths } from '../../paths.js';
import { Resume } from '../subscription/dialogs.js';
import { Recover } from '../subscription/recover.js';

// The dialog of each action, the text of its button, and the permission that it needs.
const mends = {
  recover: ['Recover subscription…', 'webhooks:write', ({ reason, ...rest }) => html`<${Recover} subscription=${{ id: reason.subscription_id }} ...${rest} />`],
  reactivate: ['Resume…', 'webhooks:write', ({ reason, ...rest }) => html`<${Resume} subscription=${{ id: reason.subscription_id }} ...${rest} />`],
  release_queue: ['Release the queue…', 'platform:write', Release],
  redeliver: ['Send again…', 'webhooks:write', Redeliver],
  redeliver_dropped: ['Send again…', 'webhooks:write', (props) => html`<${Replay} ...${props} which="dropped" />`],
  replay_failed: ['Send again…', 'webhooks:write', (props) => html`<${Replay} ...${props} which="failed" />`],
  replay_missed: ['Send this event…', 'webhooks:write', (props) => html`<${Replay} ...${props} which="missed" />`],
  raise_rate_limit: ['Raise the limit…', 'webhooks:write', RaiseLimit],
  add_event_type: ['Add this type…', 'webhooks:write', AddType],
  receive_audit_events: ['Receive audit events…', 'webhooks:write', ReceiveAudit],
};

export function Mend({ reason, event, onDone }) {
  const [isOpen, setOpen] = useState(false);
  const { action } = reason;
  if (!action) return null;
  if (action === 'change_plan') {
    return isOperator() ? html`<a class="button" href=${href(paths.organization(event.organization_id), { org: '' })}>Change the plan</a>`
      : html`<span class="quiet small">The provider of this service can change the plan.</span>`;
  }
  if (action === 'test') return html`<${LinkButton} href=${linkTo(paths.subscription(reason.subscription_id), 'webhooks:read')}>Send test again<//>`;
  const [text, needs, Open] = (mends[action] ?? []).map(named);
  if (!Open) return null;
  if (!can(needs)) {
    return html`<span class="quiet small">${action === 'release_queue' ? 'The provider of this service starts it again.'
      : html`${text.replace('…', '')}: needs the permission <code>${needs}</code>`}</span>`;
  }
  return html`<button type="button" class="button" onClick=${() => setOpen(true)}>${text}</button>
    ${isOpen && html`<${Open} reason=${reason} event=${event} onDone=${onDone} onClose=${() => setOpen(false)} />`}`;
}

// SendAgain sends what has ended once more, unless the advice is that already. Nobody repeats a test. plain: as text.
export function SendAgain({ reason: r, event, plain, onDone }) {
  const [isOpen, setOpen] = useState(false);
  const isPending = event.deliveries.some((d) => d.subscription_id === r.subscription_id && d.state === 'pending');
  if (r.attempts === 0 || isPending || event.test || ['redeliver', 'replay_failed', 'test'].includes(r.action)) return null;
  return can('webhooks:read') && can('webhooks:write') && html`<button type="button" class=${plain ? 'plain link accent toggle' : 'button'}
    onClick=${() => setOpen(true)}>Send again…</button>
    ${isOpen && html`<${Redeliver} reason=${r} event=${event} onDone=${onDone} onClose=${() => setOpen(false)} />`}`;
}

const pathOf = ({ subscription_id: id }) => `/webhooks/subscriptions/${id}/`;

// Ask is a dialog that first loads what it concerns. view, action and said get the data; said is what the page tells afterwards.
function Ask({ title, load, action, view, send, said, onDone, onClose }) {
  const { data, error, reload } = useLoad(load, []);
  const confirm = async () => {
    await send(data);
    await onDone();
    return said(data);
  };
  return html`<${Confirm} title=${title} action=${data ? action(data) : 'Counting…'} disabled=${!data} onConfirm=${confirm} onClose=${onClose}>
    ${data ? view(data) : !error && html`<p class="quiet" aria-busy="true">Counting…</p>`}
    <${ErrorBar} error=${error} retry=${reload} /><//>`;
}

function Release(props) {
  return html`<${Ask} ...${props} title="Release the queue?" load=${(signal) => api.get('/queue/', { signal })}
    action=${(q) => `Release ${count(q.pending_deliveries, 'delivery', 'deliveries')}`}
    view=${(q) => html`<p>The queue is held${q.held_since && html` since <${Time} value=${q.held_since} />`}${q.reason && html`: <bdi>${q.reason}</bdi>`}.</p>
      <p>All waiting deliveries of ${count(q.pending_subscriptions, 'subscription')} are sent, in all organizations.</p>`}
    send=${() => api.post('/queue/release/')}
    said=${(q) => `Released the queue. ${count(q.pending_deliveries, 'delivery is', 'deliveries are')} sent.`} />`;
}

// Redeliver makes a new delivery of the latest attempt's event. The log keeps attempts for a shorter time than events.
function Redeliver({ reason, event, ...rest }) {
  const path = pathOf(reason) + 'deliveries/';
  const latest = async (signal) => {
    const { data: [attempt] } = await api.get(path, { signal, query: { event_id: event.id, limit: 1 } });
    if (!attempt) throw new Error('The attempts are not kept any more, so the event cannot be sent again.');
    return attempt;
  };
  return html`<${Ask} ...${rest} title="Send this event again?" load=${latest} action=${() => 'Send 1 event again'}
    view=${() => html`<p>${reason.verdict === 'delivered' && 'It has arrived already. '}It is sent to
      ${' '}<bdi class="strong">${reason.url_host}</bdi> once more, with the same id, and repeated if it fails.</p>`}
    send=${(attempt) => api.post(`${path}${attempt.id}/redeliver/`)} said=${() => '1 event is sent again.'} />`;
}

// periodOf are this event alone, and this event with all later ones. The API counts in milliseconds.
const periodOf = ({ timestamp, type }) => ({
  one: { since: timestamp, until: new Date(Date.parse(timestamp) + 1).toISOString(), event_types: [type] }, all: { since: timestamp },
});

// Replay sends this event, or also all later ones with the same fate. Events of a batch have the same time, so it cannot send one of
// them alone. It sends nothing twice. What was discarded without an attempt has no replay, and is redelivered as the list of events does.
function Replay({ reason, event, which: only, ...rest }) {
  const [all, setAll] = useState(false);
  const isDropped = only === 'dropped', path = isDropped ? '/webhooks/redeliver/' : pathOf(reason) + 'replay/';
  const periods = periodOf(event), again = only === 'missed' ? '' : ' again';
  const body = (isAll) => {
    const { event_types: [type] = [], ...period } = isAll ? periods.all : periods.one;
    return isDropped ? { ...period, event_type: type, state: only, subscription_id: reason.subscription_id } : { ...(isAll ? periods.all : periods.one), only };
  };
  const countOf = async (isAll, signal) => (await api.post(path, { ...body(isAll), dry_run: true }, { signal })).deliveries;
  const what = { failed: 'that were given up since then', missed: 'that it has missed since then', dropped: 'that were discarded since then' }[only];
  return html`<${Ask} ...${rest} title=${`Send this event${again}?`}
    load=${async (signal) => { const [one, every] = await Promise.all([countOf(false, signal), countOf(true, signal)]); return { one, every }; }}
    action=${({ one, every }) => `Send ${count(all ? every : one, 'event')}${again}`} send=${() => api.post(path, body(all))}
    said=${({ one, every }) => `${count(all ? every : one, 'event is', 'events are')} sent${again}.`}
    view=${({ one, every }) => html`<p>It is sent to <bdi class="strong">${reason.url_host}</bdi>${one > 1 && `, with ${
      count(one - 1, 'other event')} of its type and moment`}.${!isDropped && ' What has arrived is not sent again.'}</p>
      ${every > one && html`<fieldset class="field group"><legend class="hidden-label">Which events</legend>
        <label class="choice"><input type="radio" name="which" checked=${!all} onChange=${() => setAll(false)} />
          <span>Only ${one > 1 ? 'these' : 'this event'}</span></label>
        <label class="choice"><input type="radio" name="which" checked=${all} onChange=${() => setAll(true)} />
          <span>All ${count(every, 'event')} ${what}</span></label></fieldset>`}`} />`;
}

function RaiseLimit({ reason, ...rest }) {
  const higher = (s) => Math.min(2 * s.rate_limit_per_second, 10_000);
  return html`<${Ask} ...${rest} title="Raise the limit?" load=${(signal) => api.get(pathOf(reason), { signal })}
    action=${(s) => `Allow ${count(higher(s), 'request')} a second`}
    view=${(s) => html`<p>The subscription gets at most ${count(s.rate_limit_per_second, 'request')} a
      second, and ${count(s.pending_deliveries, 'delivery waits', 'deliveries wait')}.</p>`}
    send=${(s) => api.patch(pathOf(reason), { rate_limit_per_second: higher(s) })}
    said=${(s) => `The limit is ${count(higher(s), 'request')} a second now.`} />`;
}

// AddType changes the subscription, and sends this event, too.
function AddType({ reason, event, ...rest }) {
  return html`<${Ask} ...${rest} title="Add this type to the subscription?" load=${(signal) => api.get(pathOf(reason), { signal })}
    action=${() => 'Add type and send 1 event'}
    view=${() => html`<p><bdi class="strong">${reason.url_host}</bdi> gets this event and all later ones of the type <${Tag}>${event.type}<//>.</p>`}
    send=${(s) => change(reason, event, { event_types: [...s.event_types, event.type], ...(event.isAudit && { audit_events: true }) })}
    said=${() => 'Added the type. 1 event is sent.'} />`;
}

function ReceiveAudit({ reason, event, ...rest }) {
  return html`<${Ask} ...${rest} title="Receive audit events?" load=${async () => ({})} action=${() => 'Receive audit events and send 1 event'}
    view=${() => html`<p><bdi class="strong">${reason.url_host}</bdi> gets this event and later audit events of the types that it wants.</p>`}
    send=${() => change(reason, event, { audit_events: true })}
    said=${() => 'The subscription receives audit events. 1 event is sent.'} />`;
}

async function change(reason, event, changes) {
  await api.patch(pathOf(reason), changes);
  await api.post(pathOf(reason) + 'replay/', { ...periodOf(event).one, only: 'missed' });
}
