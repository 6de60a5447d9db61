// Times: relative in text, exact in the title. Copying gives UTC.
import { html, useState, useEffect } from './html.js';

const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium' });
const units = [['year', 31536e6], ['month', 2592e6], ['day', 864e5], ['hour', 36e5], ['minute', 6e4]];

export function ago(value, now = Date.now()) {
  const ms = new Date(value) - now;
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

// Time shows an RFC 3339 time. form: 'ago' (default), 'exact', 'clock' or 'day'. none is shown for null.
export function Time({ value, form = 'ago', none = '–' }) {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (form !== 'ago') return undefined;
    const update = () => setTick((n) => n + 1);
    shown.add(update);
    return () => shown.delete(update);
  }, [form]);
  if (!value) return html`<span class="quiet">${none}</span>`;
  const date = new Date(value);
  const text = { ago, exact: exactTime, clock: (v) => clock.format(new Date(v)), day: (v) => day.format(new Date(v)) }[form](value);
  return html`<time class="nowrap" datetime=${value} title=${`${exactTime(value)}\n${value.replace('T', ' ').replace('Z', ' UTC')}`}
    onCopy=${(e) => copyAs(e, date.toISOString())}>${text}</time>`;
}

function copyAs(event, text) {
  event.clipboardData.setData('text/plain', text);
  event.preventDefault();
}

// duration shows milliseconds: 84 ms, 1.2 s, 3 min.
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 36e5) return `${Math.round(ms / 6e4)} min`;
  if (ms < 1728e5) return `${Math.round(ms / 36e5)} h`;
  return `${Math.round(ms / 864e5)} d`;
}

const whole = new Intl.NumberFormat('en');

// number shows a whole number with separators, which are hard to read without: 12,345.
export const number = (n) => whole.format(n);

// count is "1 event" or "12 events".
export const count = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;

// toField and fromField convert an RFC 3339 time to the text of a date field, in the time zone of the browser, and back.
export function toField(value) {
  if (!value || Number.isNaN(Date.parse(value))) return '';
  const date = new Date(value);
  return new Date(date - date.getTimezoneOffset() * 6e4).toISOString().slice(0, 16);
}

export const fromField = (text) => (text ? new Date(text).toISOString() : '');

const moment = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

// WithTimes shows a sentence of the API with its times in the time zone of the browser.
export const WithTimes = ({ text }) => html`<bdi>${text.split(moment).map((part, i) =>
  (i % 2 ? html`<${Time} key=${i} value=${part} form="exact" />` : part))}</bdi>`;
