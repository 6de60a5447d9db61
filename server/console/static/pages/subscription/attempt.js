// One attempt: what became of the delivery and what to do, the response, and the request as it was sent.
import { html, useLayoutEffect, useRef, useState } from '../../ui/html.js';
import { quoted } from '../../ui/curl.js';
import { Facts } from '../../ui/page.js';
import { Badge, Tag } from '../../ui/badge.js';
import { Button } from '../../ui/button.js';
import { Bar, ErrorBar, Loading } from '../../ui/state.js';
import { Confirm } from '../../ui/dialog.js';
import { Code, Headers } from '../../ui/code.js';
import { Copy, Id } from '../../ui/copy.js';
import { Icon } from '../../ui/icon.js';
import { Time, WithTimes, duration, TimeAndAge } from '../../ui/time.js';
import { usePoll } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href, place, useQuery } from '../../router.js';
import { can, linkTo } from '../../session.js';
import { paths } from '../../paths.js';
import { Mend } from '../event/mend.js';
import { mendOf, plain, verdicts, wordsOf } from './mend.js';
import { ResponseHeaders } from './response_headers.js';

const kept = 2000; // characters of a response body that the API keeps

export function Attempt({ id, subscription, sent, actions, changed }) {
  const [query] = useQuery();
  const path = `/webhooks/subscriptions/${subscription.id}/deliveries/${encodeURIComponent(id)}/`;
  const [live, setLive] = useState(true);
  const { data, error, reload } = usePoll(async (signal) => {
    const attempt = await api.get(path, { signal });
    const verdict = await explain(attempt, signal);
    setLive(attempt.outcome === 'sending' || !['delivered', 'exhausted', 'dropped', 'expired'].includes(verdict?.verdict));
    return { attempt, verdict };
  }, [path, sent], live ? 3000 : 0);
  const [asking, setAsking] = useState(false);
  const [told, setTold] = useState(false);
  const [refused, setRefused] = useState(null);
  const frame = useRef(null);
  useLayoutEffect(() => {
    const { top } = frame.current.getBoundingClientRect(); // opened above the screen or far below, its answer would not show
    if (top < 0 || top > innerHeight / 2) frame.current.scrollIntoView({ block: 'start' });
  }, [Boolean(data)]);
  const back = href(place.get().path, { ...query, attempt: null });

  const redeliver = async () => {
    await api.post(path + 'redeliver/');
    setTold(true);
    changed();
  };
  const { attempt, verdict } = data ?? {};
  const arrived = attempt?.outcome === 'succeeded' || verdict?.verdict === 'delivered';
  return html`<section class="card stack panel" aria-label="Attempt" ref=${frame}>
    <a class="back" href=${back}><${Icon} name="left" /> All attempts</a>
    ${!data && html`<${Loading} error=${error} title="This attempt cannot be shown" retry=${reload} rows=${6} />`}
    ${data && html`
      <div class="row spread one-line">
        <h3 class="row"><${Badge} status=${attempt.outcome} /><${Tag}>${attempt.event_type}<//></h3>
        <div class="row">${!subscription.isDeleted && can('webhooks:write') && (attempt.trigger === 'test'
          ? html`<${Button} icon="send" onError=${setRefused} onClick=${() => actions.test(attempt.event_type)}>Send test again<//>`
          : html`<${Button} icon="reload" onError=${setRefused} onClick=${arrived ? () => setAsking(true) : redeliver}>
            ${arrived ? 'Send again…' : 'Send again'}<//>`)}
          <a class="plain close" data-close href=${back} aria-label="Close the attempt"><${Icon} name="cross" /></a></div>
      </div>
      <${ErrorBar} error=${refused} />
      ${told && html`<${Bar} tone="success" title="A new delivery of the event was created"><p>${subscription.blocked_by
        ? 'It waits, because nothing is sent to the subscription now.' : 'Its attempt appears in the list.'}</p><//>`}
      <${Response} attempt=${attempt} />
      <${Verdict} ...${{ attempt, verdict, subscription, changed }} />
      <${Facts} across items=${[
        ['Number', `${attempt.attempt_number}, ${triggers[attempt.trigger]}`],
        ['Started', html`<${Time} value=${attempt.attempted_at} form="exact" />`],
        ['Duration', attempt.outcome === 'sending' ? 'In progress' : duration(attempt.duration_ms)],
        ['Next attempt', attempt.next_attempt_at && html`<${TimeAndAge} value=${attempt.next_attempt_at} />`],
        ['Event', html`<${Id} value=${attempt.event_id} href=${linkTo(paths.event(attempt.event_id), 'events:read')} />`],
        ['Attempt', html`<${Id} value=${attempt.id} />`],
      ]} />
      <${Request} attempt=${attempt} />`}
    ${asking && html`<${Confirm} title="Send this event again?" action="Send 1 event again" onConfirm=${redeliver} onClose=${() => setAsking(false)}>
      <p>The receiver has accepted it already. It gets the same event a second time, with the same id.</p><//>`}
  </section>`;
}

const triggers = { event: 'for the event', retry: 'a retry', manual: 'sent again by hand', test: 'a test' };

// explain asks what became of the event. Without the permission, the attempt alone is shown.
async function explain(attempt, signal) {
  if (!can('events:read')) return null;
  try {
    const page = await api.get(`/events/${attempt.event_id}/explain/`, { signal, query: { subscription_id: attempt.subscription_id } });
    return page.data[0] ?? null;
  } catch (error) {
    if (error.status === 404 || error.status === 403) return null; // an audit event, or one that is no longer kept
    throw error;
  }
}

function Verdict({ attempt, verdict, subscription, changed }) {
  const [tone, title] = verdicts[verdict?.verdict] ?? [];
  if (!title || (verdict.verdict === 'delivered' && attempt.outcome === 'succeeded')) return null;
  const isTest = attempt.trigger === 'test';
  const event = { id: attempt.event_id, type: attempt.event_type, organization_id: subscription.organization_id, timestamp: published(attempt) };
  const inHead = ['redeliver', 'test'].includes(verdict.action); // the head of the panel has the button
  const parts = verdict.parts.filter(({ kind }) => kind !== 'cause' || verdict.last_error !== attempt.error); // the response has it
  const mend = !inHead && html`<${Mend} reason=${verdict} event=${event} onDone=${changed} />`;
  return html`<${Bar} tone=${tone} title=${!isTest && title} action=${mend}>
    <p>${parts.map(({ text }) => html`<${WithTimes} text=${plain(text)} /> `)}</p><//>`;
}

// published is the time of the event, which is in the body of the request.
function published({ request: { body } }) {
  try { return JSON.parse(body).timestamp; } catch { return undefined; }
}

export function Response({ attempt: a }) {
  if (a.outcome === 'sending') return null;
  return html`<div class="stack tight">
    <h3>Response ${a.response_status && html`<span class=${a.outcome === 'failed' ? 'danger' : 'quiet'}>${a.response_status}</span>`}</h3>
    ${a.error && html`<p>${!a.error.startsWith('http_status') && html`<bdi class="danger" title=${a.error}>${wordsOf(a.error)}</bdi>. `}${mendOf(a)}</p>`}
    <${Code} text=${a.response_body} label="Body of the response" empty=${a.response_status ? 'The response has no body.' : 'There was no response.'} />
    ${[...a.response_body].length >= kept && html`<p class="quiet small">Only the first 2,000 characters are kept.</p>`}
    <${ResponseHeaders} headers=${a.response_headers} />
  </div>`;
}

function Request({ attempt: { request } }) {
  const { method, url, headers, body } = request;
  return html`<div class="stack tight">
    <div class="row spread"><h3>Request</h3>${url && body !== null && html`<${Copy} text=${curl(request)}>Copy as curl<//>`}</div>
    <p class="mono"><span class="strong">${method}</span> <bdi>${url ?? '(the address has changed since)'}</bdi></p>
    <${Headers} label="Headers of the request" items=${Object.entries(headers)} />
    ${body === null ? html`<p class="quiet small">Your role does not show the body. It needs the permission <code>events:read</code>.</p>`
      : html`<${Code} text=${body} pretty label="Body of the request" />`}
  </div>`;
}

// curl leaves out the headers whose values the API does not show.
function curl({ url, headers, body }) {
  const shown = Object.entries(headers).filter(([, value]) => !value.includes('***'));
  return [`curl ${quoted(url)}`, ...shown.map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`), `--data-binary ${quoted(body)}`].join(' \\\n  ');
}
