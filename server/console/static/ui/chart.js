// The chart of attempts over time: bars of succeeded and failed, and the 95th percentile of the duration as a line.
//
// It is drawn in pixels of its width, so bars are sharp. Classes of CSS have the colours.
import { html, cx, useLayoutEffect, useMemo, useRef, useState } from './html.js';
import { countTicks, durationStep, timeTicks, periodText, shortTime } from './scale.js';
import { atMost, count, duration, exactTime } from './time.js';
import { go } from '../router.js';

const left = 40, right = 52, top = 8, bottom = 24; // room around the bars
const compact = new Intl.NumberFormat('en', { notation: 'compact' });

// Chart shows the response of /webhooks/stats/. Its head has the values of the step under the pointer; arrow keys move too. aside
// is at the end of its head, such as a choice of the period. With hrefOf(since, until), each step is a link, and so is what one drags over.
export function Chart({ stats, label = 'Attempts over time', aside, hrefOf }) {
  const box = useRef(null);
  const [[width, height], setSize] = useState([0, 0]);
  const [pointed, setPointed] = useState(null);
  const [dragged, setDragged] = useState(null); // the step where the button went down

  useLayoutEffect(() => {
    const measure = () => setSize([box.current.clientWidth, box.current.clientHeight]);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const table = useMemo(() => stats && html`<${Data} label=${label} stats=${stats} />`, [stats, label]);
  const drawing = useMemo(() => stats && width > 0 && html`<${Drawing} ...${{ stats, width, height }} />`, [stats, width, height]);
  const last = (stats?.data.length ?? 0) - 1;
  const point = pointed !== null && stats?.data[pointed];
  const atPointer = (event) => {
    const { left: start } = box.current.getBoundingClientRect();
    const i = Math.floor((event.clientX - start - left) / (width - left - right) * (last + 1));
    const found = i >= 0 && i <= last ? i : null;
    setPointed(found);
    if (event.type === 'pointerdown') setDragged(event.pointerType === 'mouse' && event.button === 0 ? found : null);
  };
  const [from, to] = [Math.min(pointed, dragged ?? pointed), Math.max(pointed, dragged ?? pointed)];
  const url = hrefOf && point && hrefOf(stats.data[from].at, new Date(Date.parse(stats.data[to].at) + stats.step * 1000).toISOString());
  const end = () => { setPointed(null); setDragged(null); };
  const onClick = (event) => { // a finger, or the end of a drag; the link below the pointer follows a click
    if (url && (from !== to || !event.target.closest('a'))) {
      event.preventDefault();
      go(url);
    }
    setDragged(null);
  };
  const onKeyDown = (event) => {
    const now = pointed ?? last + 1;
    if (event.key === 'Enter' && url) go(url);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    setPointed(Math.min(Math.max(next, 0), last));
  };
  return html`<figure class="chart">
    <figcaption class="chart-head">
      ${stats ? html`<${Values} at=${point ? periodText(Date.parse(point.at), stats.step) : lastText(stats)}
      counts=${point || stats.totals} isAll=${!point && aside} />`
      : html`<span> </span>`}${aside && html`<span class="chart-aside">${aside}</span>`}</figcaption>
    <div class="chart-box" ref=${box} role="group" aria-label=${stats ? summary(label, stats) : label} tabindex=${stats ? 0 : undefined}
      onPointerMove=${atPointer} onPointerDown=${atPointer} onPointerLeave=${end} onClick=${onClick} onKeyDown=${onKeyDown} onBlur=${end}>
      ${drawing}
      ${drawing && point && html`<svg class="chart-over" width=${width} height=${height} aria-hidden="true">
        <a href=${url || undefined} draggable="false" tabindex="-1">
          <rect class="chart-pointed" ...${slots(from, to, last + 1, width)} y=${top} height=${height - top - bottom} /></a></svg>`}
      ${stats && !stats.data.some((p) => p.succeeded || p.failed) && html`<p class="chart-none quiet">No deliveries in this time. Tests do not count.</p>`}
      ${table}
    </div>
  </figure>`;
}

// Values are the numbers of a step, or of all if the choice of the period says what they are of.
const Values = ({ at, counts, isAll }) => html`<span class="chart-key succeeded">${count(counts.succeeded, 'succeeded', 'succeeded')}</span>
  <span class="chart-key failed">${count(counts.failed, 'failed', 'failed')}</span>
  <span class="chart-key p95">p95 ${atMost(counts.duration_ms?.p95)}</span>
  <span class=${cx('quiet chart-at', isAll && 'wide')}>${at}</span>`;

const periods = [[1, 'hour'], [24, '24 hours'], [168, '7 days'], [720, '30 days'], [8760, 'year']];

// lastText names a period that ends now by its length, beside which it has at most one more step. Any other has its beginning and end.
function lastText({ since, until, step }) {
  const hours = (Date.parse(until) - Date.parse(since)) / 36e5;
  const found = periods.find(([n]) => n <= hours && hours <= n + step / 3600 && n * 3600 > step);
  return found && Date.parse(until) >= Date.now() - 6e4 ? `Last ${found[1]}` : `${shortTime(since)} – ${shortTime(until)}`;
}

const summary = (label, { totals, since, until }) => `${label}, ${exactTime(since)} to ${exactTime(until)}: `
  + `${totals.succeeded} succeeded, ${totals.failed} failed, 95 percent within ${atMost(totals.duration_ms?.p95)}`;

// slot is the place of a step. From 4 px on, one px or more is left free between bars.
function slot(i, n, width) {
  const size = (width - left - right) / n;
  const x = Math.round(left + i * size);
  return { x, width: Math.max(1, Math.round(left + (i + 1) * size) - x) };
}

function slots(from, to, n, width) {
  const first = slot(from, n, width), last = slot(to, n, width);
  return { x: first.x, width: last.x + last.width - first.x };
}

function Drawing({ stats: { data, since, until }, width, height }) {
  const n = Math.max(data.length, 1), plot = width - left - right, floor = height - bottom, inner = floor - top;
  const gap = plot / n < 4 ? 0 : Math.max(1, Math.round(plot / n / 4));
  const counts = countTicks(Math.max(...data.map((p) => p.succeeded + p.failed), 0));
  const step = durationStep(Math.max(...data.map(durationOf), 0), counts.n);
  const tall = (value, full) => value / full * inner;

  let succeeded = '', failed = '', line = '';
  for (const [i, p] of data.entries()) {
    const { x, width: size } = slot(i, n, width);
    const wide = Math.max(1, Math.min(size - gap, 28)), at = x + Math.floor((size - gap - wide) / 2);
    const bad = p.failed && Math.max(2, tall(p.failed, counts.n * counts.step)); // one failure is always visible
    const good = tall(p.succeeded, counts.n * counts.step);
    if (good) succeeded += `M${at} ${px(floor - bad)}v${px(-good)}h${wide}v${px(good)}z`;
    if (bad) failed += `M${at} ${floor}v${px(-bad)}h${wide}v${px(bad)}z`;
    const p95 = durationOf(p), before = durationOf(data[i - 1]); // a gap where too little was sent
    if (p95 === null) continue;
    const y = px(floor - tall(p95, counts.n * step)), isAlone = before === null && durationOf(data[i + 1]) === null;
    line += isAlone ? `M${at} ${y}h${wide}` : `${before === null ? 'M' : 'L'}${px(at + wide / 2)} ${y}`;
  }
  const from = Date.parse(since), all = Date.parse(until) - from;
  const times = timeTicks(from, from + all, plot / 64).map(([ms, text]) => [left + (ms - from) / all * plot, text]);
  return html`<svg width=${width} height=${height} aria-hidden="true">
    ${Array.from({ length: counts.n + 1 }, (_, i) => {
      const y = Math.round(floor - i / counts.n * inner) + 0.5;
      return html`<path key=${i} class="chart-grid" d="M${left} ${y}H${width - right}" />
        ${(succeeded || failed) && html`<text x=${left - 8} y=${y + 4} class="end">${compact.format(i * counts.step)}</text>`}
        ${line && html`<text x=${width - right + 8} y=${y + 4}>${i ? duration(i * step) : 0}</text>`}`;
    })}
    ${times.map(([x, text]) => x > left + 12 && x < width - right - 12 && html`<text key=${text} x=${px(x)} y=${height - 6} class="middle">${text}</text>`)}
    <path class="spark-succeeded" d=${succeeded} /><path class="spark-failed" d=${failed} />
    <path class="chart-line" d=${line} />
  </svg>`;
}

// durationOf is the duration that the line shows. Of fewer attempts, the 95th percentile is only the slowest one.
const durationOf = (p) => (p && p.succeeded + p.failed >= 5 ? p.duration_ms?.p95 ?? null : null);

const px = (n) => Math.round(n * 10) / 10;

// Data is the chart as a table, for screen readers. Steps without attempts are left out.
const Data = ({ label, stats: { data, step } }) => html`<table class="hidden-label"><caption>${label}</caption>
  <thead><tr><th>Time</th><th>Succeeded</th><th>Failed</th><th>95 percent within</th></tr></thead>
  <tbody>${data.filter((p) => p.succeeded || p.failed).map((p) => html`<tr key=${p.at}><th>${periodText(Date.parse(p.at), step)}</th>
    <td>${p.succeeded}</td><td>${p.failed}</td><td>${atMost(p.duration_ms?.p95)}</td></tr>`)}</tbody></table>`;
