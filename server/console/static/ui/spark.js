// A sparkline: bars of succeeded and failed attempts, small enough for a row.
import { html } from './html.js';
import { count } from './time.js';

// Spark shows two arrays of the same length. A bar of failed attempts is never less than a pixel.
export function Spark({ succeeded = [], failed = [], period = 'the last 24 hours' }) {
  const good = sum(succeeded), bad = sum(failed);
  const label = good + bad ? `${count(good, 'attempt')} succeeded and ${bad} failed in ${period}` : `No attempts in ${period}`;
  const width = Math.max(succeeded.length, 1) * 4, height = 20;
  const most = Math.max(1, ...succeeded.map((n, i) => n + failed[i]));
  const size = (n) => n && Math.max(1.5, n / most * height);
  return html`<svg class="spark" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    <title>${label}</title>
    <path class="spark-base" d="M0 ${height - 0.5}H${width}" />
    <path class="spark-succeeded" d=${bars(succeeded, (n, i) => [size(failed[i]), size(n)], height)} />
    <path class="spark-failed" d=${bars(failed, (n) => [0, size(n)], height)} />
  </svg>`;
}

function bars(values, place, height) {
  return values.map((n, i) => {
    const [from, tall] = place(n, i);
    return n ? `M${i * 4 + 0.5} ${round(height - from)}v${-round(Math.min(tall, height - from))}h3v${round(Math.min(tall, height - from))}z` : '';
  }).join('');
}

const round = (n) => Math.round(n * 10) / 10;
const sum = (list) => list.reduce((a, b) => a + b, 0);
