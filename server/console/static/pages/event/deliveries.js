// What became of the event at each subscription: verdict, reason, mend, and the attempts with their answers.
import { html } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Address, Badge } from '../../ui/badge.js';
import { Code } from '../../ui/code.js';
import { Icon } from '../../ui/icon.js';
import { LinkButton } from '../../ui/button.js';
import { Empty, Loading } from '../../ui/state.js';
import { Countdown, Time, WithTimes, count, duration } from '../../ui/time.js';
import { More } from '../../ui/table.js';
import { useList, useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { inPlace, useQuery } from '../../router.js';
import { can, linkTo } from '../../session.js';
import { paths } from '../../paths.js';
import { Mend, SendAgain } from './mend.js';
import { mendOf, plain, wordsOf } from '../subscription/mend.js';
import { ResponseHeaders } from '../subscription/response_headers.js';
import { verdicts } from './verdicts.js';

export function Deliveries({ event, reasons, isLive, onChanged }) {
  const { rows, error, reload } = reasons;
  const known = useSubscriptions();
  if (!rows) return html`<${Section} title="Subscriptions"><${Loading} error=${error} retry=${reload} rows=${3} /><//>`;
  const rank = (r) => verdicts[r.verdict]?.rank ?? 4;
  const sent = rows.filter((r) => !verdicts[r.verdict]?.isAbsent).sort((a, b) => rank(a) - rank(b));
  const absent = rows.filter((r) => verdicts[r.verdict]?.isAbsent);
  const tried = sent.filter((r) => r.attempts > 0);
  const first = sent.length === 1 || rank(tried[0] ?? {}) < 4 ? tried[0]?.subscription_id : undefined;
  const parts = { event, isLive, onChanged, first, known, isOnly: sent.length === 1 };
  return html`
    ${sent.length > 0 && html`<${Section} title="Deliveries">
      <ul class="deliveries" aria-label="Deliveries">${sent.map((r) => html`<${Delivery} key=${r.subscription_id} reason=${r} ...${parts} />`)}</ul><//>`}
    ${rows.length === 0 && !reasons.more.hasMore
      && html`<${Empty} title="No subscription" text="A subscription sends events to an HTTPS address. New subscriptions get no earlier events.">
      <${LinkButton} href=${linkTo(paths.subscriptionNew, 'webhooks:write')}>New subscription<//><//>`}
    ${absent.length > 0 && html`<${Absent} rows=${absent} isOpen=${sent.length === 0} ...${parts} />`}
    <${More} list=${reasons} />`;
}

// useSubscriptions returns subscriptions by id, as far as one page has them: two may have the same host.
function useSubscriptions() {
  const { data } = useLoad(async (signal) => (can('webhooks:read') ? api.get('/webhooks/subscriptions/', { signal, query: { limit: 200 } }) : null), []);
  return new Map((data?.data ?? []).map((s) => [s.id, s]));
}

// Delivery is one subscription that the event was meant for. What is well has one line. Its attempts are open if the
// URL or its state says so. isOnly: the event has no other.
function Delivery({ reason: r, event, isLive, first, known, isOnly, onChanged }) {
  const [query, setQuery] = useQuery();
  const isOpen = (query.open ?? first) === r.subscription_id && r.attempts > 0;
  const isWell = r.verdict === 'delivered';
  const isBare = isOnly && r.attempts === 1; // the attempt shows without a click
  const turn = () => setQuery({ open: isOpen ? 'none' : r.subscription_id, attempt: null }, inPlace);
  const toggle = r.attempts > 0 && can('webhooks:read') && !isBare && html`<button type="button" class="plain link accent toggle"
    title=${count(r.attempts, 'attempt')}
    aria-label=${count(r.attempts, 'attempt')} aria-expanded=${isOpen} onClick=${turn}><${Icon} name=${isOpen ? 'down' : 'right'} />${r.attempts}×</button>`;
  const again = html`<${SendAgain} reason=${r} event=${event} plain=${isWell} onDone=${onChanged} />`;
  const mend = html`<${Mend} reason=${r} event=${event} onDone=${onChanged} />`;
  return html`<li class="delivery">
    <div class="delivery-head">
      <${Verdict} verdict=${r.verdict} />
      <${Host} reason=${r} known=${known} />
      ${r.next_attempt_at && html`<span class="quiet">Next attempt <${Countdown} value=${r.next_attempt_at} /></span>`}
      ${isWell && html`<span class="row">${toggle}${again}${mend}</span>`}
    </div>
    ${!isWell && html`<p class="quiet"><${Detail} reason=${r} hint=${!isOpen && !isBare && mendOf(r)} /></p>
      <div class="row">${mend}${again}${toggle}</div>`}
    ${(isOpen || isBare) && can('webhooks:read') && html`<${Attempts} reason=${r} event=${event} isLive=${isLive} />`}
  </li>`;
}

// Detail is what the API says about a delivery. What happened and the remedy stand out. The hint follows the cause.
function Detail({ reason, hint }) {
  const cause = reason.parts.findIndex(({ kind }) => kind === 'cause');
  const parts = hint ? reason.parts.toSpliced(cause < 0 ? reason.parts.length : cause + 1, 0, { text: hint }) : reason.parts;
  return parts.map(({ kind, text }) => html`<span class=${kind === 'what' || kind === 'remedy' ? 'first' : undefined}><${WithTimes}
    text=${plain(text)} /></span> `);
}

function Verdict({ verdict }) {
  const { status = 'interrupted', text } = verdicts[verdict] ?? {};
  return html`<${Badge} status=${status} text=${text ?? (verdicts[verdict] ? undefined : verdict)} />`;
}

// Host is the host of the subscription, with the rest of its address if it is known.
function Host({ reason: r, known }) {
  if (!can('webhooks:read')) return html`<bdi class="grow cut strong">${r.url_host || 'Feed'}</bdi>`;
  const subscription = known.get(r.subscription_id);
  return html`<a class="grow cut" href=${linkTo(paths.subscription(r.subscription_id), 'webhooks:read')} title=${subscription?.url ?? r.subscription_id}>
    ${subscription ? html`<${Address} url=${subscription.url} />` : html`<bdi class="strong">${r.url_host || 'Feed'}</bdi>`}</a>`;
}

// Attempts are the requests to one subscription with the event, newest first. Each opens with its answer. That of the last one is
// open if it has failed and no other follows.
function Attempts({ reason: r, event, isLive }) {
  const [query, setQuery] = useQuery();
  const list = useList(`/webhooks/subscriptions/${r.subscription_id}/deliveries/`, { event_id: event.id }, { poll: isLive ? 2000 : 0, limit: 20 });
  if (!list.rows) return html`<${Loading} error=${list.error} retry=${list.reload}
    rows=${Math.min(r.attempts, 5) + (r.verdict === 'exhausted' && !query.attempt ? 5 : 0)} />`;
  const shown = query.attempt ?? (!isLive && list.rows[0]?.outcome === 'failed' ? list.rows[0].id : 'none');
  return html`<ol class="attempt-list">${list.rows.map((a) => html`<li key=${a.id}>
      <details open=${shown === a.id} onToggle=${(e) => {
        if (e.currentTarget.open !== (shown === a.id)) setQuery({ open: r.subscription_id, attempt: e.currentTarget.open ? a.id : 'none' }, inPlace);
      }}>
        <summary><${Line} attempt=${a} /></summary>
        <${Answer} attempt=${a} isOpen=${shown === a.id} />
      </details></li>`)}</ol>
    <${More} list=${list} />`;
}

const Line = ({ attempt: a }) => html`<span class="attempt-line">
  <${Badge} status=${a.outcome} text=${a.response_status && html`<span class="hidden-label">${a.outcome} </span>${a.response_status}`} />
  <span class="quiet">#${a.attempt_number}${{ manual: ', by hand', test: ', test' }[a.trigger] ?? ''}</span>
  <${Time} value=${a.attempted_at} form="log" />
  <span class="quiet">${a.outcome !== 'sending' && duration(a.duration_ms)}</span>
  <bdi class="quiet grow cut" title=${a.error}>${a.response_status ? '' : wordsOf(a.error)}</bdi></span>`;

const Answer = ({ attempt: a, isOpen }) => html`<div class="stack tight answer">
  ${a.error && html`<p><bdi class="danger" title=${a.error}>${wordsOf(a.error)}</bdi>. ${mendOf(a)}</p>`}
  <${Code} label="Answer of the receiver" text=${a.response_body} pretty
    empty=${a.response_status ? 'The answer has no body.' : a.outcome === 'sending' ? 'No answer yet.' : 'There was no answer.'} />
  ${isOpen && a.response_status && html`<${LoadedHeaders} attempt=${a} />`}
  <div class="row"><${LinkButton} href=${linkTo(paths.subscription(a.subscription_id), 'webhooks:read', { attempt: a.id })}>Request as sent<//></div>
</div>`;

// LoadedHeaders are the response headers of an attempt of a list, which does not have them.
function LoadedHeaders({ attempt: { id, subscription_id: subscription } }) {
  const { data } = useLoad((signal) => api.get(`/webhooks/subscriptions/${subscription}/deliveries/${id}/`, { signal }), [id]);
  return data && html`<${ResponseHeaders} headers=${data.response_headers} />`;
}

// Absent are the subscriptions that the event was not meant for, and why.
function Absent({ rows, isOpen, event, known, onChanged }) {
  const [query, setQuery] = useQuery();
  const open = query.others ? query.others === 'open' : isOpen;
  return html`<details class="attempts" open=${open} onToggle=${(e) => {
    if (e.currentTarget.open !== open) setQuery({ others: e.currentTarget.open ? 'open' : 'closed' }, inPlace);
  }}>
    <summary>Not sent to ${count(rows.length, 'subscription')}</summary>
    ${open && html`<ul class="deliveries" aria-label="Not sent">${rows.map((r) => html`<li key=${r.subscription_id} class="delivery">
      <div class="delivery-head"><${Verdict} verdict=${r.verdict} /><${Host} reason=${r} known=${known} />
        <${Mend} reason=${r} event=${event} onDone=${onChanged} /></div>
      <p class="quiet"><${Detail} reason=${r} /></p></li>`)}</ul>`}
  </details>`;
}
