// A form, and its field of one line. The sign-in needs no more; form.js has the other fields.
import { html, cx, useContext, useState, useRef, useEffect, useId } from './html.js';
import { ErrorBar } from './state.js';
import { SubmitButton } from './button.js';
import { Closing, Confirm } from './dialog.js';
import { useAction } from './hooks.js';
import { told } from './told.js';
import { confirmLeave } from '../router.js';
import { said } from '../session.js';

export function useForm(initial, send) {
  const [values, setValues] = useState(initial);
  const names = useRef(new Set()); // of the fields that are shown
  const changed = useRef(new Set()); // since the form was sent: their errors no longer hold
  const kept = useRef(initial); // what the server has, or what nobody has typed
  const action = useAction(async () => {
    changed.current.clear();
    const before = kept.current;
    kept.current = values;
    try {
      await send(values);
    } catch (error) {
      kept.current = before;
      throw error;
    }
  });
  const errorOf = (name) => {
    if (changed.current.has(name)) return undefined;
    const fields = action.error?.fields ?? {};
    const found = Object.keys(fields).find((f) => f === name || f.startsWith(name + '.'));
    return found && fields[found];
  };
  const set = (name, value) => {
    changed.current.add(name);
    setValues((v) => ({ ...v, [name]: value }));
    told.set({ text: '' }); // it was about what was there before
  };
  const replace = (all) => {
    kept.current = all;
    setValues(all);
  };
  const isChanged = () => JSON.stringify(values) !== JSON.stringify(kept.current);
  const { run: submit, busy, error } = action;
  return { values, set, setValues: replace, isChanged, names: names.current, errorOf, submit, busy, error };
}

// Form sends with Enter and with the button. An error that belongs to no field is above the button. In a dialog, it can be cancelled.
// kind is that of the button; cancel is the link beside it, with the text beside. Before the page is left, it asks if something was typed,
// unless nothing is lost (free).
export function Form({ form, submit, kind = 'primary', cancel, beside = 'Cancel', disabled, free = false, children }) {
  const element = useRef(null);
  const close = useContext(Closing);
  const [goOn, setGoOn] = useState(null);
  const isChanged = useRef(null);
  isChanged.current = () => !free && !close && form.isChanged();
  useEffect(() => confirmLeave(() => isChanged.current(), (leave) => setGoOn(() => leave)), []);
  useEffect(() => { element.current.querySelector('[aria-invalid="true"]')?.focus(); }, [form.error]);
  const send = (event) => {
    event.preventDefault();
    form.submit();
  };
  const fields = Object.keys(form.error?.fields ?? {});
  const allShown = fields.length > 0 && fields.every((f) => form.names.has(f.split('.')[0]));
  return html`${goOn && html`<${Confirm} title="Leave without saving?" action="Leave" danger onConfirm=${goOn} onClose=${() => setGoOn(null)}>
      <p>What you typed is lost.</p><//>`}
  <form ref=${element} class="form" onSubmit=${send} novalidate>
    ${children}
    ${!allShown && html`<${ErrorBar} error=${form.error} />`}
    <div class="row">
      ${close && html`<button type="button" class="button" onClick=${close}>Cancel</button>`}
      <${SubmitButton} busy=${form.busy} disabled=${disabled} kind=${kind}>${submit}<//>
      ${cancel && html`<a class="button" href=${cancel}>${beside}</a>`}
    </div>
  </form>`;
}

// Field is the frame of an input. An error takes the place of the hint. children is a function that gets the attributes of
// the input, with those that the frame does not know.
export function Field({ form, name, label, hint, optional, children, ...rest }) {
  const id = useId();
  form?.names.add(name);
  const error = form?.errorOf(name);
  const about = error ? id + 'e' : hint ? id + 'h' : undefined;
  return html`<div class="field">
    <label for=${id}>${label}${optional && html` <span class="quiet">optional</span>`}</label>
    ${children({ id, name, 'aria-describedby': about, 'aria-invalid': error ? 'true' : undefined, ...rest })}
    ${error ? html`<${FieldError} error=${error} id=${id + 'e'} />` : hint && html`<p class="hint" id=${id + 'h'}>${hint}</p>`}
  </div>`;
}

// FieldError is the error of a field, or of several that have none of their own to describe.
export const FieldError = ({ error, id }) => error && html`<p class="field-error" id=${id} role=${id ? undefined : 'alert'}>
  <bdi>${said(error)}</bdi></p>`;

export const bind = ({ form, name }) => ({ value: form.values[name], onInput: (e) => form.set(name, e.target.value) });

export const TextField = ({ mono, ...props }) => html`<${Field} ...${props}>
  ${(attributes) => html`<input class=${cx('input', mono && 'mono')} autocomplete="off" spellcheck="false" dir="auto" ...${attributes} ...${bind(props)} />`}
<//>`;
