// Forms: each field has a label, a hint, and the error that the API names for it.
//
//   const form = useForm({ name: '', scope: [] }, async (values) => { await api.post('/api-keys/', values); });
//   html`<${Form} form=${form} submit="Create key">
//     <${TextField} form=${form} name="name" label="Name" hint="So that you recognize it." required />
//   <//>`
import { html, cx, useState, useRef, useEffect, useId } from './html.js';
import { ErrorBar } from './state.js';
import { SubmitButton } from './button.js';
import { useAction } from './hooks.js';
import { toField, fromField } from './time.js';

export function useForm(initial, send) {
  const [values, setValues] = useState(initial);
  const names = useRef(new Set()); // of the fields that are shown
  const action = useAction(() => send(values));
  const errorOf = (name) => {
    const fields = action.error?.fields ?? {};
    const found = Object.keys(fields).find((f) => f === name || f.startsWith(name + '.'));
    return found && fields[found];
  };
  const set = (name, value) => setValues((v) => ({ ...v, [name]: value }));
  return { values, set, setValues, names: names.current, errorOf, submit: action.run, busy: action.busy, error: action.error };
}

// Form sends with Enter and with the button. An error that belongs to no field is above the button.
export function Form({ form, submit, cancel, danger, disabled, children }) {
  const element = useRef(null);
  useEffect(() => { element.current.querySelector('[aria-invalid="true"]')?.focus(); }, [form.error]);
  const send = (event) => {
    event.preventDefault();
    form.submit();
  };
  const fields = Object.keys(form.error?.fields ?? {});
  const allShown = fields.length > 0 && fields.every((f) => form.names.has(f.split('.')[0]));
  return html`<form ref=${element} class="form" onSubmit=${send} novalidate>
    ${children}
    ${!allShown && html`<${ErrorBar} error=${form.error} />`}
    <div class="row">
      <${SubmitButton} busy=${form.busy} disabled=${disabled} kind=${danger ? 'danger' : 'primary'}>${submit}<//>
      ${cancel && html`<a class="button" href=${cancel}>Cancel</a>`}
    </div>
  </form>`;
}

// Field is the frame of an input. children is a function that gets the attributes of the input.
export function Field({ form, name, label, hint, optional, children }) {
  const id = useId();
  form?.names.add(name);
  const error = form?.errorOf(name);
  const about = cx(hint && id + 'h', error && id + 'e') || undefined;
  return html`<div class="field">
    <label for=${id}>${label}${optional && html` <span class="quiet">optional</span>`}</label>
    ${children({ id, name, 'aria-describedby': about, 'aria-invalid': error ? 'true' : undefined })}
    ${error && html`<p class="field-error" id=${id + 'e'}><bdi>${error}</bdi></p>`}
    ${hint && html`<p class="hint" id=${id + 'h'}>${hint}</p>`}
  </div>`;
}

const bind = (form, name) => ({ value: form.values[name], onInput: (e) => form.set(name, e.target.value) });

export const TextField = ({ form, name, label, hint, optional, mono, ...rest }) => html`<${Field} ...${{ form, name, label, hint, optional }}>
  ${(attributes) => html`<input class=${cx('input', mono && 'mono')} autocomplete="off" spellcheck="false" dir="auto" ...${attributes} ...${rest} ...${bind(form, name)} />`}
<//>`;

export const AreaField = ({ form, name, label, hint, optional, rows = 6, ...rest }) => html`<${Field} ...${{ form, name, label, hint, optional }}>
  ${(attributes) => html`<textarea class="input mono" rows=${rows} spellcheck="false" dir="auto" ...${attributes} ...${rest} ...${bind(form, name)} />`}
<//>`;

// SelectField: options are [[value, text]].
export const SelectField = ({ form, name, label, hint, optional, options, ...rest }) => html`<${Field} ...${{ form, name, label, hint, optional }}>
  ${(attributes) => html`<select class="input" ...${attributes} ...${rest} ...${bind(form, name)}>
    ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
  </select>`}
<//>`;

// TimeField is a point in time: the value is an RFC 3339 time, or empty.
export const TimeField = ({ form, name, label, hint, optional, ...rest }) => html`<${Field} ...${{ form, name, label, hint, optional }}>
  ${(attributes) => html`<input type="datetime-local" class="input" ...${attributes} ...${rest} value=${toField(form.values[name])}
    onChange=${(e) => form.set(name, fromField(e.target.value))} />`}
<//>`;

export function CheckField({ form, name, label, hint }) {
  form.names.add(name);
  const id = useId();
  const error = form.errorOf(name);
  return html`<div class="check">
    <input type="checkbox" id=${id} name=${name} checked=${form.values[name]} aria-describedby=${hint ? id + 'h' : undefined}
      onChange=${(e) => form.set(name, e.target.checked)} />
    <div><label for=${id}>${label}</label>${hint && html`<p class="hint" id=${id + 'h'}>${hint}</p>`}
      ${error && html`<p class="field-error" role="alert"><bdi>${error}</bdi></p>`}</div>
  </div>`;
}

// CheckGroup picks some of many values: options are [[value, text, hint?]], form.values[name] is an array.
export function CheckGroup({ form, name, label, hint, options }) {
  form.names.add(name);
  const error = form.errorOf(name);
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
    ${error && html`<p class="field-error" role="alert"><bdi>${error}</bdi></p>`}
  </fieldset>`;
}
