// Dialogs: the native element, so focus stays inside and Esc closes.
import { html, createContext, useEffect, useRef, useState, useId } from './html.js';
import { Icon } from './icon.js';
import { ErrorBar } from './state.js';
import { SubmitButton } from './button.js';
import { useAction } from './hooks.js';
import { tell } from './told.js';
import { rememberFocus } from './focus.js';

// Closing closes the dialog around a form.
export const Closing = createContext(null);

// Dialog is open while it is rendered. onClose removes it. fixed: it cannot be closed with Esc or the cross.
export function Dialog({ title, onClose, fixed = false, wide = false, children }) {
  const element = useRef(null);
  const id = useId();
  useEffect(() => {
    const giveBack = rememberFocus();
    const dialog = element.current;
    dialog.showModal();
    return () => {
      dialog.close(); // nothing outside of an open dialog can have the focus
      giveBack();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    if (!fixed) onClose();
  };
  return html`<dialog ref=${element} class=${wide ? 'dialog wide-dialog' : 'dialog'} aria-labelledby=${id} onCancel=${cancel}>
    <header class="row spread"><h2 id=${id}>${title}</h2>
      ${!fixed && html`<button type="button" class="plain" aria-label="Close" onClick=${onClose}><${Icon} name="cross" /></button>`}</header>
    <${Closing.Provider} value=${fixed ? null : onClose}><div class="stack">${children}</div><//>
  </dialog>`;
}

// Confirm asks before something that sends or destroys. children say what happens, with the number it concerns. typed is a
// text to type if it cannot be undone. The dialog closes when onConfirm has ended, and stays with the error if it has failed. A text
// that onConfirm returns is told on the page.
export function Confirm({ title, action, typed, danger, disabled, onConfirm, onClose, children }) {
  const [text, setText] = useState('');
  const { run, busy, error } = useAction(async () => {
    const said = await onConfirm();
    onClose();
    if (typeof said === 'string') tell(said);
  });
  const submit = (event) => {
    event.preventDefault();
    run();
  };
  const missing = typed !== undefined && text.trim() !== typed;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <div class="stack tight">${children}</div>
      ${typed !== undefined && html`<label class="field"><span>Type <code class="strong"><bdi>${typed}</bdi></code> to confirm</span>
        <input class="input mono" autocomplete="off" spellcheck="false" value=${text} onInput=${(e) => setText(e.target.value)} /></label>`}
      <${ErrorBar} error=${error} />
      <div class="row end">
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <${SubmitButton} kind=${danger ? 'danger' : 'primary'} busy=${busy} disabled=${missing || disabled}>${action}<//>
      </div>
    </form>
  <//>`;
}
