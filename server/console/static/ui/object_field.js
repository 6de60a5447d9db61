// A field for a JSON object. It says where a mistake is while one types. checkObject throws the mistake when the form is sent.
import { html, useRef } from './html.js';
import { Field } from './form.js';
import { readJSON } from './json.js';
import { ApiError } from '../api.js';

export function ObjectField({ form, name, label, hint, rows = 12, ...rest }) {
  const text = form.values[name];
  const { error, pretty } = text ? readJSON(text) : {};
  const element = useRef(null);
  const show = () => {
    const area = element.current.querySelector('textarea');
    area.focus();
    area.setSelectionRange(error.at, Math.min(error.at + 1, text.length));
  };
  return html`<div ref=${element} class="stack tight">
    <${Field} ...${{ form, name, label, hint, ...rest }}>
      ${(attributes) => html`<textarea class="input mono" rows=${rows} spellcheck="false" dir="ltr" wrap="soft" ...${attributes}
        value=${text} onInput=${(e) => form.set(name, e.target.value)} />`}
    <//>
    <div class="row small">
      ${error ? html`<span class="warning" role="status">Line ${error.line}, column ${error.column}: ${error.message}</span>
        <button type="button" class="plain link accent" onClick=${show}>Go there</button>`
        : text && html`<button type="button" class="plain link accent" onClick=${() => form.set(name, pretty)}>Format</button>`}
    </div>
  </div>`;
}

export function checkObject(name, text) {
  const { error } = readJSON(text);
  const wrong = error ? `Line ${error.line}, column ${error.column}: ${error.message}` : text.trim()[0] !== '{' ? 'This must be an object: { … }.' : '';
  if (wrong) throw new ApiError({ title: 'This is no JSON object', detail: wrong, errors: [{ field: name, message: wrong }] });
}
