// A field for a list of short texts, such as event types. Enter, a comma or a space ends one.
import { html, useState, useId } from './html.js';
import { Icon } from './icon.js';
import { Field } from './form.js';

export function TokensField({ form, name, label, hint, placeholder, suggestions = [] }) {
  const [text, setText] = useState('');
  const id = useId();
  const list = form.values[name];
  const add = (typed) => {
    setText('');
    form.set(name, [...new Set([...list, ...typed.split(/[\s,]+/).filter(Boolean)])]);
  };
  const onInput = (event) => {
    const typed = event.target.value;
    const chosen = event.inputType === 'insertReplacementText' || !event.inputType; // from the suggestions
    if (/[\s,]/.test(typed) || (chosen && suggestions.includes(typed))) add(typed);
    else setText(typed);
  };
  const onKeyDown = (event) => {
    if (event.key === 'Enter' && text) {
      event.preventDefault();
      add(text);
    } else if (event.key === 'Backspace' && !text && list.length) form.set(name, list.slice(0, -1));
  };
  return html`<${Field} ...${{ form, name, label, hint }}>
    ${(attributes) => html`<div class="input tokens">
      ${list.map((token) => html`<span key=${token} class="tag"><bdi>${token}</bdi><button type="button" aria-label=${`Remove ${token}`}
        onClick=${() => form.set(name, list.filter((t) => t !== token))}><${Icon} name="cross" /></button></span>`)}
      <input ...${attributes} class="mono" value=${text} placeholder=${list.length ? undefined : placeholder} list=${id} autocomplete="off" spellcheck="false"
        onInput=${onInput} onKeyDown=${onKeyDown} onBlur=${() => text && add(text)} />
      <datalist id=${id}>${suggestions.filter((s) => !list.includes(s)).map((s) => html`<option key=${s} value=${s} />`)}</datalist>
    </div>`}
  <//>`;
}
