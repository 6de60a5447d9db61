// The chart of attempts over time: bars of succeeded and failed, and the 95th percentile of the duration as a line.
//
//   const stats = usePoll((signal) => api.get('/webhooks/stats/', { signal, query: { since } }), [since], 10000);
//   html`<${Chart} stats=${stats.data} />`
//
// It is drawn by uPlot, which is loaded with the first chart.
import { html, useEffect, useRef, useState } from './html.js';
import { settings } from '../settings.js';
import { count, duration, exactTime } from './time.js';

let library = null;

function loadLibrary() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = settings.assets + 'vendor/uPlot.iife.min.js';
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => { library = null; reject(new Error('The chart was not loaded.')); };
    document.head.append(script);
  });
  return library;
}

// Chart shows the response of /webhooks/stats/. aside is at the end of its head, such as a choice of the period. Under the pointer, its head has the values of one step.
export function Chart({ stats, label = 'Attempts over time', aside }) {
  const element = useRef(null);
  const plot = useRef(null);
  const [pointed, setPointed] = useState(null);
  const [theme, setTheme] = useState(0);
  const [failed, setFailed] = useState(false);
  const columns = stats && columnsOf(stats);
  const latest = useRef(columns);
  latest.current = columns;
  const ready = Boolean(stats);

  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const redraw = () => setTheme((n) => n + 1);
    dark.addEventListener('change', redraw);
    return () => dark.removeEventListener('change', redraw);
  }, []);

  useEffect(() => {
    if (!ready) return undefined;
    let ended = false, observer;
    loadLibrary().then((uPlot) => {
      if (ended) return;
      const box = element.current;
      plot.current = new uPlot(optionsOf(uPlot, box, setPointed), latest.current, box);
      observer = new ResizeObserver(() => plot.current.setSize({ width: box.clientWidth, height: box.clientHeight }));
      observer.observe(box);
    }, () => setFailed(true));
    return () => {
      ended = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme, ready]);

  useEffect(() => { plot.current?.setData(latest.current); }, [stats]);

  const point = pointed !== null && stats?.data[pointed];
  return html`<figure class="chart">
    <figcaption class="chart-head">${stats ? html`<${Values} at=${point ? exactTime(point.at) : 'In total'} counts=${point || stats.totals} />` : html`<span> </span>`}${aside && html`<span class="chart-aside">${aside}</span>`}</figcaption>
    <div class="chart-box" ref=${element} role="img" aria-label=${stats ? summary(label, stats) : label}>
      ${failed && html`<p class="quiet small">The chart was not loaded. Reload the page.</p>`}</div>
  </figure>`;
}

const Values = ({ at, counts }) => html`<span class="chart-at">${at}</span>
  <span class="chart-key succeeded">${count(counts.succeeded, 'succeeded', 'succeeded')}</span>
  <span class="chart-key failed">${count(counts.failed, 'failed', 'failed')}</span>
  <span class="chart-key p95">p95 ${duration(counts.duration_ms?.p95)}</span>`;

const summary = (label, { totals, since, until }) => `${label}, ${exactTime(since)} to ${exactTime(until)}: `
  + `${totals.succeeded} succeeded, ${totals.failed} failed, 95 percent within ${duration(totals.duration_ms?.p95)}`;

// columnsOf stacks by drawing: where some failed, the bar of all attempts has the colour of failed ones, and that of
// succeeded ones covers it.
function columnsOf({ data }) {
  return [
    data.map((p) => Date.parse(p.at) / 1000),
    data.map((p) => (p.failed ? p.succeeded + p.failed : null)),
    data.map((p) => p.succeeded),
    data.map((p) => p.duration_ms?.p95 ?? null),
  ];
}

function optionsOf(uPlot, box, setPointed) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color('--grey-7'), font: `12px ${color('--sans')}`, grid: { show: false }, ticks: { show: false } };
  const bars = uPlot.paths.bars({ size: [0.72, 24, 1], align: 1 });
  const bar = (fill) => ({ scale: 'n', fill, stroke: fill, width: 0, paths: bars, points: { show: false } });
  return {
    width: box.clientWidth, height: box.clientHeight, padding: [8, 0, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { range: (u, low, high) => [low, high + (u.data[0][1] - u.data[0][0] || 60)] }, // room for the last bar
      n: { range: (_, low, high) => [0, Math.max(4, high ?? 0) * 1.05] },
      ms: { range: (_, low, high) => [0, Math.max(10, high ?? 0) * 1.2] },
    },
    axes: [
      { ...axis, size: 40, space: 72, values: [
        [31536e3, '{YYYY}', null, null, null, null, null, null, 1],
        [2419200, '{MMM}', '\n{YYYY}', null, null, null, null, null, 1],
        [86400, '{D} {MMM}', null, null, null, null, null, null, 1],
        [3600, '{HH}:{mm}', null, null, '\n{D} {MMM}', null, null, null, 1],
        [60, '{HH}:{mm}', null, null, null, null, null, null, 1],
      ] },
      { ...axis, scale: 'n', size: 44, grid: { stroke: color('--grey-4'), width: 1 }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8] },
      { ...axis, scale: 'ms', side: 1, size: 56, values: (_, ticks) => ticks.map((ms) => duration(ms)) },
    ],
    series: [
      {},
      bar(color('--bar-failed')),
      bar(color('--bar-succeeded')),
      { scale: 'ms', stroke: color('--accent-text'), width: 1.5, spanGaps: true, points: { show: false } },
    ],
    hooks: { setCursor: [(u) => setPointed(u.cursor.idx ?? null)] },
  };
}
