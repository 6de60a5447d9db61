// Rows of a name and a value, such as headers: rows are [{ name, value }]. examples are the texts of empty fields of a row.
import { html } from './html.js';
import { Icon } from './icon.js';

export function Pairs({ rows, set, of = '', add, most = Infinity, error, examples }) {
  const change = (i, part) => set(rows.map((row, at) => (at === i ? { ...row, ...part } : row)));
  return html`${rows.map((row, i) => html`<div key=${i} class="header-row">
      ${['name', 'value'].map((part, column) => html`<input key=${part} class="input mono"
        aria-label=${`${column ? 'Value' : 'Name'} ${of}${i + 1}`} aria-invalid=${error && !column ? 'true' : undefined}
        placeholder=${examples(row)[column]} value=${row[part]} dir="auto" autocomplete="off"
        spellcheck="false" onInput=${(e) => change(i, { [part]: e.target.value })} />`)}
      <button type="button" class="plain" aria-label=${`Remove ${row.name || i + 1}`}
        onClick=${() => set(rows.filter((_, at) => at !== i))}><${Icon} name="cross" /></button>
    </div>`)}
    ${rows.length < most && html`<div><button type="button" class="button" onClick=${() => set([...rows, { name: '', value: '' }])}>
      <${Icon} name="plus" /><span>${add}</span></button></div>`}`;
}
