// The filter of a subscription: rows of a path, an operator and a value, and how many recent events pass.
import { html, useState } from '../../ui/html.js';
import { FieldError } from '../../ui/form.js';
import { Button } from '../../ui/button.js';
import { Icon } from '../../ui/icon.js';
import { count } from '../../ui/time.js';
import { ErrorBar } from '../../ui/state.js';
import { api } from '../../api.js';
import { can } from '../../session.js';

const most = 10;
const ops = {
  eq: 'is', ne: 'is not', in: 'is one of', lt: 'is less than', lte: 'is at most',
  gt: 'is more than', gte: 'is at least', prefix: 'begins with', exists: 'exists',
};

// A value is JSON, such as 100, true or ["CH", "DE"]. Anything else is text.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text.trim();
  }
}

const written = (value) => (typeof value === 'string' && parsed(value) === value ? value : JSON.stringify(value));

// rowsOf and filterOf turn the filter of the API into rows of the form, and back.
export const rowsOf = (filter) => (filter ?? []).map(({ path, op, value }) => ({ path, op, value: written(value) }));

export function filterOf(rows) {
  const filter = rows.filter((r) => r.path.trim() || r.value.trim()).map(({ path, op, value }) => ({ path: path.trim(), op, value: parsed(value) }));
  return filter.length ? filter : null;
}

// sentences writes the conditions for people who may not change them.
export const sentences = (filter) => rowsOf(filter).map(({ path, op, value }) => `${path} ${ops[op]} ${value}`).join(', and ');

export function FilterField({ form }) {
  form.names.add('filter');
  const rows = form.values.filter, error = form.errorOf('filter');
  const set = (next) => form.set('filter', next);
  const change = (i, part) => set(rows.map((row, at) => (at === i ? { ...row, ...part } : row)));
  return html`<fieldset class="field">
    <legend>Filter <span class="quiet">optional</span></legend>
    ${rows.map((row, i) => html`<div key=${i} class="header-row condition">
      <input class="input mono" aria-label=${`Path of condition ${i + 1}`}
        aria-invalid=${error ? 'true' : undefined} placeholder="customer.country" value=${row.path}
        autocomplete="off" autocapitalize="off" spellcheck="false" onInput=${(e) => change(i, { path: e.target.value })} />
      <select class="input" aria-label=${`Operator of condition ${i + 1}`} value=${row.op} onChange=${(e) => change(i, { op: e.target.value })}>
        ${Object.entries(ops).map(([op, words]) => html`<option key=${op} value=${op}>${words}</option>`)}
      </select>
      <input class="input mono" aria-label=${`Value of condition ${i + 1}`}
        placeholder=${row.op === 'in' ? '["CH", "DE"]' : row.op === 'exists' ? 'true' : 'CH'} value=${row.value}
        dir="auto" autocomplete="off" spellcheck="false" onInput=${(e) => change(i, { value: e.target.value })} />
      <button type="button" class="plain" aria-label=${`Remove condition ${i + 1}`}
        onClick=${() => set(rows.filter((_, at) => at !== i))}><${Icon} name="cross" /></button>
    </div>`)}
    ${rows.length < most && html`<div><button type="button" class="button" onClick=${() => set([...rows, { path: '', op: 'eq', value: '' }])}>
      <${Icon} name="plus" /><span>Add condition</span></button></div>`}
    <${FieldError} error=${error} />
    <p class="hint">Only events whose data fulfil all conditions are sent. A value is JSON, such as 100 or true. Anything else is text.</p>
    ${rows.length > 0 && can('events:read') && html`<${Preview} types=${form.values.event_types} rows=${rows} />`}
  </fieldset>`;
}

// Preview tries the conditions on the newest events.
function Preview({ types, rows }) {
  const [found, setFound] = useState(null);
  const asked = JSON.stringify([types, rows]);
  const ask = async () => {
    try {
      setFound({ asked, ...await api.post('/webhooks/filters/preview/', { event_types: types, filter: filterOf(rows) ?? [] }) });
    } catch (error) {
      setFound({ asked, error });
    }
  };
  return html`<div class="row small">
    <${Button} onClick=${ask}>Try it on recent events<//>
    <span role="status">${found?.asked === asked && !found.error
      && (found.examined === 0 ? 'There is no recent event of these types.' : `${found.matched} of ${count(found.examined, 'recent event')} pass.`)}</span>
  </div>${found?.asked === asked && found.error && html`<${ErrorBar} error=${found.error} />`}`;
}
