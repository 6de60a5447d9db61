// Scales of charts: round values for the axes, and local times that fit.

// niceStep returns the smallest of 1, 2, 5, 10, 20 … that is at least the value.
function niceStep(value) {
  const size = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5].map((n) => n * size).find((n) => n >= value) ?? 10 * size;
}

// countTicks returns three to five steps from 0 to at least the value, with little room above it.
export function countTicks(most) {
  const tops = [4, 3, 5].map((n) => ({ n, step: niceStep(most / n) }));
  return tops.reduce((best, t) => (t.n * t.step < best.n * best.step ? t : best));
}

const durations = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 36e5];

// durationStep returns the step of an axis of milliseconds that has n steps.
export const durationStep = (most, n) => durations.find((ms) => ms * n >= most) ?? niceStep(most / n);

const minute = 6e4, hour = 36e5, day = 864e5;
const times = [1, 2, 5, 10, 15, 20, 30].map((n) => n * minute).concat([1, 2, 3, 6, 12].map((n) => n * hour));
const days = [1, 2, 3, 7, 14];
const months = [1, 2, 3, 6, 12];

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const date = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const month = new Intl.DateTimeFormat('en-GB', { month: 'short' });

// timeTicks returns round times of the browser's time zone between two times, with texts: [[ms, '14:00'], [ms, '22 Nov']].
// At most so many fit.
export function timeTicks(since, until, most) {
  const least = (until - since) / Math.max(most, 1);
  const start = new Date(since);
  const [y, m, d] = [start.getFullYear(), start.getMonth(), start.getDate()];
  const of = (list, size) => list.find((n) => n * size >= least);
  const ms = of(times, 1), everyDays = of(days, day), everyMonths = of(months, 30 * day) ?? 12;
  const at = ms ? (n) => new Date(y, m, d, 0, n * ms / minute)
    : everyDays ? (n) => new Date(y, m, d + n * everyDays) : (n) => new Date(y, m - m % everyMonths + n * everyMonths, 1);
  const text = (t) => {
    if (ms && (t.getHours() || t.getMinutes())) return clock.format(t);
    if (ms || everyDays) return date.format(t);
    return t.getMonth() ? month.format(t) : String(t.getFullYear());
  };
  const ticks = [];
  for (let n = 0, t = at(0); t < until; t = at(++n)) {
    if (t >= since) ticks.push([+t, text(t)]);
  }
  return ticks;
}

export const shortTime = (at) => `${date.format(new Date(at))}, ${clock.format(new Date(at))}`;

const utcDate = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });

// periodText is the period of one step: "22 Nov, 14:00 – 15:00", or "22 Nov (UTC)", because a step of a day is one of UTC.
export function periodText(from, step) {
  const to = new Date(from + step * 1000);
  return step >= 86400 ? `${utcDate.format(from)} (UTC)` : `${date.format(from)}, ${clock.format(from)} – ${clock.format(to)}`;
}
