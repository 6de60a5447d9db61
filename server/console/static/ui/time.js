// Times: relative in text, exact in the title. Copying gives UTC.
import { html, named, useState, useEffect } from './html.js';
import { said } from '../session.js';

const relative = new Intl.RelativeTimeFormat('en', { numeric: 'always', style: 'short' });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const moment = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium' });
const units = [['year', 31536e6], ['month', 2592e6], ['day', 864e5], ['hour', 36e5], ['minute', 6e4]];

function ago(value) {
  const ms = new Date(value) - Date.now();
  for (const [unit, size] of units) {
    if (Math.abs(ms) >= size) return relative.format(Math.trunc(ms / size), unit);
  }
  if (Math.abs(ms) < 5000) return 'now';
  return relative.format(Math.trunc(ms / 1000), 'second');
}

export const exactTime = (value) => exact.format(new Date(value));

// One timer serves all times of the page.
const shown = new Set();
setInterval(() => { if (!document.hidden) for (const update of shown) update(); }, 10_000);

// Time shows an RFC 3339 time. form: 'ago' (default), 'exact', 'day', or 'log': the clock, with the date
// unless it is today. none is shown for null.
export function Time({ value, form = 'ago', none = '–' }) {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (form !== 'ago') return undefined;
    const update = () => setTick((n) => n + 1);
    shown.add(update);
    return () => shown.delete(update);
  }, [form]);
  if (!value) return html`<span class="quiet">${none}</span>`;
  const text = { ago, exact: exactTime, log, day: (v) => day.format(new Date(v)) }[form](value);
  const copyUTC = (event) => {
    event.clipboardData.setData('text/plain', new Date(value).toISOString());
    event.preventDefault();
  };
  return html`<time class="nowrap" datetime=${value} title=${`${exactTime(value)}\n${value.replace('T', ' ').replace('Z', ' UTC')}`}
    onCopy=${copyUTC}>${text}</time>`;
}

// TimeAndAge is "22 Nov 2026, 12:00:00 (2 min. ago)".
export const TimeAndAge = ({ value }) => html`<${Time} value=${value} form="exact" /> <span class="quiet">(<${Time} value=${value} />)</span>`;

const log = (value) => (new Date(value).toDateString() === new Date().toDateString() ? clock : moment).format(new Date(value));

// Countdown shows the time until a moment, each second: "in 12 s".
export function Countdown({ value }) {
  const [, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setTick((n) => n + 1); }, 1000);
    return () => clearInterval(timer);
  }, []);
  const left = Math.ceil((new Date(value) - Date.now()) / 1000);
  const text = left <= 0 ? 'now' : left < 60 ? `in ${left} s` : left < 3600 ? `in ${Math.floor(left / 60)} min ${left % 60} s` : ago(value);
  return html`<time class="nowrap" datetime=${value} title=${exactTime(value)}>${text}</time>`;
}

// duration shows milliseconds: 84 ms, 1.2 s, 3 min.
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 0.5) return '< 1 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 36e5) return `${Math.round(ms / 6e4)} min`;
  if (ms < 1728e5) return `${Math.round(ms / 36e5)} h`;
  return `${Math.round(ms / 864e5)} d`;
}

// atMost is a duration of the statistics, whose last class has no upper end.
export const atMost = (ms) => (ms >= 10_000 ? '10 s or more' : duration(ms));

const whole = new Intl.NumberFormat('en');

// number shows a whole number with separators, which are hard to read without: 12,345.
export const number = (n) => whole.format(n);

// count is "1 event" or "12 events".
export const count = (n, one, many = one + 's') => `${number(n)} ${named(n === 1 ? one : many)}`;

// toField and fromField convert an RFC 3339 time to the text of a date field, in the time zone of the browser, and back.
export function toField(value) {
  if (!value || Number.isNaN(Date.parse(value))) return '';
  const date = new Date(value);
  return new Date(date - date.getTimezoneOffset() * 6e4).toISOString().slice(0, 16);
}

export const fromField = (text) => (text ? new Date(text).toISOString() : '');

const inText = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

// WithTimes shows a sentence of the API with its times in the time zone of the browser. form is that of Time.
export const WithTimes = ({ text, form = 'exact' }) => html`<bdi>${said(text).split(inText).map((part, i) =>
  (i % 2 ? html`<${Time} key=${i} value=${part} form=${form} />` : part))}</bdi>`;

// bytes shows a size: 512 B, 10 GB, 1.5 GB. A unit is 1,000 of the one before.
export function bytes(n) {
  const at = Math.min(5, n < 1000 ? 0 : Math.floor(Math.log10(n) / 3));
  return `${Number((n / 1000 ** at).toPrecision(3))} ${['B', 'kB', 'MB', 'GB', 'TB', 'PB'][at]}`;
}
