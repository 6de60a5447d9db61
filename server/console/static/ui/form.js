// Forms: each field has a label, a hint, and the error that the API names for it.
import { html, useId } from './html.js';
import { Field, FieldError, bind } from './text_form.js';
import { toField, fromField } from './time.js';

export { Field, FieldError, Form, TextField, useForm } from './text_form.js';

export const AreaField = (props) => html`<${Field} rows=${6} ...${props}>
  ${(attributes) => html`<textarea class="input" dir="auto" ...${attributes} ...${bind(props)} />`}
<//>`;

// SelectField: options are [[value, text]].
export const SelectField = ({ options, ...props }) => html`<${Field} ...${props}>
  ${(attributes) => html`<select class="input" ...${attributes} ...${bind(props)}>
    ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
  </select>`}
<//>`;

// TimeField is a point in time: the value is an RFC 3339 time, or empty.
export const TimeField = ({ form, name, ...props }) => html`<${Field} form=${form} name=${name} ...${props}>
  ${(attributes) => html`<input type="datetime-local" class="input" ...${attributes} value=${toField(form.values[name])}
    onChange=${(e) => form.set(name, fromField(e.target.value))} />`}
<//>`;

export function CheckField({ form, name, label, hint }) {
  form.names.add(name);
  const id = useId();
  return html`<div class="check">
    <input type="checkbox" id=${id} name=${name} checked=${form.values[name]} aria-describedby=${hint ? id + 'h' : undefined}
      onChange=${(e) => form.set(name, e.target.checked)} />
    <div><label for=${id}>${label}</label>${hint && html`<p class="hint" id=${id + 'h'}>${hint}</p>`}
      <${FieldError} error=${form.errorOf(name)} /></div>
  </div>`;
}

// CheckGroup picks some of many values: options are [[value, text, hint?]], form.values[name] is an array.
export function CheckGroup({ form, name, label, hint, options }) {
  form.names.add(name);
  const chosen = new Set(form.values[name]);
  const toggle = (value) => {
    if (!chosen.delete(value)) chosen.add(value);
    form.set(name, options.map(([v]) => v).filter((v) => chosen.has(v)));
  };
  return html`<fieldset class="field group">
    <legend>${label}</legend>
    ${hint && html`<p class="hint">${hint}</p>`}
    <div class="choices">${options.map(([value, text, about]) => html`<label key=${value} class="choice">
      <input type="checkbox" checked=${chosen.has(value)} onChange=${() => toggle(value)} />
      <span><bdi>${text}</bdi>${about && html`<span class="hint"> ${about}</span>`}</span></label>`)}</div>
    <${FieldError} error=${form.errorOf(name)} />
  </fieldset>`;
}
