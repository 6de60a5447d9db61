// A status is always an icon and a word, never a colour alone.
import { html, cx, breakable } from './html.js';
import { Icon } from './icon.js';

const statuses = {
  // subscriptions
  healthy: ['success', 'ok', 'Healthy'],
  failing: ['warning', 'warn', 'Failing'],
  disabled: ['danger', 'bad', 'Disabled'],
  paused: ['quiet', 'pause', 'Paused'],
  plan: ['warning', 'lock', 'Not in the plan'],
  queue_held: ['warning', 'pause', 'Sending stopped'],
  // attempts and deliveries
  sending: ['quiet', 'send', 'Sending'],
  succeeded: ['success', 'ok', 'Succeeded'],
  delivered: ['success', 'ok', 'Delivered'],
  failed: ['danger', 'bad', 'Failed'],
  exhausted: ['danger', 'bad', 'Gave up'],
  interrupted: ['quiet', 'off', 'Interrupted'],
  pending: ['quiet', 'clock', 'Waiting'],
  discarded: ['quiet', 'off', 'Discarded'],
  // keys and tokens
  active: ['success', 'ok', 'Active'],
  revoked: ['quiet', 'off', 'Revoked'],
  expired: ['quiet', 'clock', 'Expired'],
};

// Badge shows a status. text replaces its word.
export function Badge({ status, text }) {
  const [tone, icon, word] = statuses[status] ?? ['quiet', 'info', status];
  return html`<span class="badge"><${Icon} name=${icon} class=${tone} /><span>${text ?? word}</span></span>`;
}

// subscriptionStatus is what a list shows of a subscription: what stops it comes before its health.
export function subscriptionStatus({ status, is_active, blocked_by }) {
  if (blocked_by === 'paused' || (!is_active && blocked_by === null && status !== 'disabled')) return 'paused';
  if (blocked_by === 'plan' || blocked_by === 'queue_held') return blocked_by;
  return status;
}

// Tag is a short word in a frame, such as an event type or a permission.
export const Tag = ({ children }) => html`<span class="tag"><bdi>${children}</bdi></span>`;

// Tags shows the first of many values, and how many more there are. none is the text for no value.
export const Tags = ({ values, most = 3, none = 'None', wrap }) => html`<span class=${cx('tags', wrap && 'wrap')} title=${values.join('\n')}>
  ${values.slice(0, most).map((v) => html`<${Tag} key=${v}>${v}<//>`)}
  ${values.length > most && html`<span class="quiet small nowrap">+${values.length - most}</span>`}
  ${values.length === 0 && html`<span class="quiet">${none}</span>`}</span>`;

// TwoLines is the main cell of a row: a name, and less important below it.
export const TwoLines = ({ title, children }) => html`<span class="two-lines"><span class="cut strong" title=${title}><bdi>${title}</bdi></span>
  ${children && html`<span class="cut small quiet">${children}</span>`}</span>`;

// Address shows the host of a URL and its path. Without room, the end of the path stays.
// The scheme says nothing, because it is https. Without a URL it is a feed.
export function Address({ url }) {
  if (!url) return html`<span class="strong">Feed</span>`;
  const { host, pathname, search } = new URL(url);
  return html`<span class="address"><span class="strong cut">${host}</span><span class="quiet cut tail"><bdi
    >${pathname === '/' && !search ? '' : breakable(pathname + search)}</bdi></span></span>`;
}

export const Count = ({ value, label }) =>
  value > 0 && html`<span class="count"><span aria-hidden="true">${value > 99 ? '99+' : value}</span>
    <span class="hidden-label">${value} ${label}</span></span>`;
