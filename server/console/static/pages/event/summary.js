// The answer in one line: "Delivered to 3 of 4 subscriptions; 1 waits for its next attempt in 12 s."
import { html, named } from '../../ui/html.js';
import { Bar } from '../../ui/state.js';
import { groupBy } from '../../ui/group.js';
import { Countdown, WithTimes, count } from '../../ui/time.js';
import { wordsOf } from '../subscription/mend.js';
import { outcomes, verdicts } from './verdicts.js';

export function Summary({ event, reasons }) {
  const all = outcomes(event, reasons.rows);
  if (all.length === 0) return html`<${Nowhere} reasons=${reasons} />`;
  const groups = groupBy(all, (outcome) => outcome.verdict);
  const delivered = groups.get('delivered')?.length ?? 0;
  const only = all.length === 1 && delivered && reasons.rows?.find((r) => r.verdict === 'delivered');
  if (only) return html`<${Bar} tone="success"><p class="summary strong"><${WithTimes} text=${only.detail} /></p><//>`;
  const rest = [...groups].filter(([verdict]) => verdict !== 'delivered').sort(([a], [b]) => verdicts[a].rank - verdicts[b].rank);
  const clauses = rest.map(([verdict, list], i) => html`<span key=${verdict}>${i > 0 && '; '}
    <${Clause} verdict=${verdict} list=${list} isOnly=${all.length === 1} /></span>`);
  return html`<${Bar} tone=${toneOf(rest, delivered)}><p class="summary strong">
    ${delivered > 0 && html`${deliveredTo(delivered, all.length)}${rest.length > 0 && '; '}`}
    ${delivered === 0 && all.length > 1 && html`Not delivered yet to any of ${count(all.length, 'subscription')}; `}${clauses}.
  </p><//>`;
}

function deliveredTo(n, all) {
  if (all === 1) return 'Delivered';
  return n === all ? `Delivered to all ${count(all, 'subscription')}` : `Delivered to ${n} of ${count(all, 'subscription')}`;
}

// Clause tells of the deliveries with one verdict. isOnly: the event has no others.
function Clause({ verdict, list, isOnly }) {
  const n = list.length, { waits, many } = verdicts[verdict];
  if (verdict === 'exhausted') {
    return isOnly ? html`Not delivered: given up after ${count(list[0].attempts, 'attempt')}${lastError(list[0].error)}` : `${n} failed for good`;
  }
  if (verdict === 'dropped') return isOnly ? 'Not delivered: the delivery was discarded' : `${n} ${n === 1 ? 'was' : 'were'} discarded`;
  if (verdict === 'expired') return isOnly ? 'Not delivered: it waited longer than events are kept' : `${n} waited too long`;
  const who = isOnly ? 'Not delivered yet: the delivery' : n;
  if (verdict !== 'scheduled') return named(`${who} ${n === 1 ? waits : many}`);
  const next = list.map((o) => o.next).filter(Boolean).sort()[0];
  const isFirst = list.every((o) => o.attempts === 0);
  const noun = isFirst ? 'its first attempt' : 'a retry';
  return html`${who} ${n === 1 ? 'waits' : 'wait'} for ${n === 1 ? noun : isFirst ? 'the first attempts' : 'retries'}
    ${next && html`, ${n > 1 && 'the first '}<${Countdown} value=${next} />`}`;
}

// lastError is a sentence about the last error of a delivery, without its dot: ". The receiver answered 503".
const lastError = (error) => error && html`. <bdi>${wordsOf(error)}</bdi>`;

function toneOf(rest, delivered) {
  const worst = Math.min(9, ...rest.map(([verdict]) => verdicts[verdict].rank));
  if (worst === 0) return 'danger';
  if (worst <= 2) return 'warning';
  if (worst === 3) return 'info';
  return delivered > 0 ? 'success' : 'warning';
}

// Nowhere says why an event has no delivery at all.
function Nowhere({ reasons: { rows, more } }) {
  if (!rows) return html`<${Bar}><p class="summary strong">Sent to no subscription.</p><//>`;
  const have = (verdict) => rows.some((r) => r.verdict === verdict);
  const text = rows.length === 0 && !more.hasMore ? 'Sent nowhere, because there was no subscription.'
    : have('in_feed') ? 'In the feed of a subscription, where a program reads it.'
    : have('plan_lacked_webhooks') ? 'Sent nowhere, because the plan had no webhooks.'
      : have('filtered') ? 'Sent nowhere, because it passes no filter of a subscription that wants its type.'
      : rows.every((r) => r.verdict === 'created_later') ? 'Sent nowhere, because all subscriptions were created later.'
        : 'Sent nowhere, because no subscription wanted this type.';
  return html`<${Bar} tone=${have('plan_lacked_webhooks') ? 'warning' : 'info'}><p class="summary strong">${named(text)}</p><//>`;
}
