// A field for a list of event types. Enter, a comma or a space ends one. With single, it has one type, as a text, and take gets what was
// chosen or typed in full. types are those of the API, with what the catalogue says about them.
import { html, useState, useId } from './html.js';
import { Options } from '../shell/combobox.js';
import { Icon } from './icon.js';
import { Field } from './form.js';

const most = 50; // types that are offered at once

export function TokensField({ form, name, label, hint, placeholder, types = [], single, take: taken, ...rest }) {
  const [typed, setTyped] = useState('');
  const [text, setText] = single ? [form.values[name], (value) => form.set(name, value)] : [typed, setTyped];
  const [at, setAt] = useState(null); // the type that Enter takes; -1: what is typed; null: nothing is offered
  const id = useId();
  const list = single ? [] : form.values[name];
  const open = types.filter((t) => !isCovered(t.type, list) && !isReserved(t));
  const offered = at === null ? [] : offer(open, text.trim().toLowerCase(), single ? undefined : list);
  const add = (typed, found) => {
    if (single) {
      setText(typed);
      setAt(null);
      taken?.(found);
      return;
    }
    setText('');
    setAt(-1);
    form.set(name, [...new Set([...list, ...typed.split(/[\s,]+/).filter(Boolean)])]);
  };
  const onInput = ({ target: { value } }) => {
    if (!single && /[\s,]/.test(value)) return add(value);
    setText(value);
    if (single) taken?.(types.find((t) => t.type === value));
    return setAt(-1);
  };
  const onKeyDown = (event) => {
    const { key } = event;
    if (key === 'ArrowDown') setAt(at === null ? 0 : Math.min(at + 1, offered.length - 1));
    else if (key === 'ArrowUp' && offered.length) setAt(Math.max(at - 1, -1));
    else if (key === 'Enter' && (offered[at] || (text && !single))) add(offered[at]?.type ?? text, offered[at]);
    else if (key === 'Escape' && offered.length) setAt(null);
    else {
      if (key === 'Backspace' && !text && list.length) form.set(name, list.slice(0, -1));
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const onBlur = () => {
    if (text && !single) add(text);
    setAt(null);
  };
  return html`<${Field} ...${{ form, name, label, hint, ...rest }}>
    ${(attributes) => html`<div class="combobox"><div class="input tokens">
      ${list.map((token) => html`<span key=${token} class="tag"><bdi>${token}</bdi><button type="button" aria-label=${`Remove ${token}`}
        onClick=${() => form.set(name, list.filter((t) => t !== token))}><${Icon} name="cross" /></button></span>`)}
      <input ...${attributes} class="mono" role="combobox" aria-autocomplete="list" aria-expanded=${offered.length > 0} aria-controls=${id}
        aria-activedescendant=${offered[at] ? `${id}-${at}` : undefined} value=${text}
        placeholder=${list.length ? undefined : placeholder} autocomplete="off" spellcheck="false"
        ...${{ onInput, onKeyDown, onBlur }} onFocus=${() => setAt(-1)} onClick=${() => setAt(at ?? -1)} />
    </div>${offered.length > 0 && html`<div class="combobox-list of-types" onMouseDown=${(e) => e.preventDefault()}>
      <${Options} id=${id} label="Event types" results=${offered} group=${groupOf} take=${(t) => add(t.type, t)} ...${{ at, setAt, show }} />
      ${offered[at]?.example && html`<pre aria-label="Example">${JSON.stringify(offered[at].example, null, 2)}</pre>`}
    </div>`}</div>`}
  <//>`;
}

const groupOf = ({ group, description }) => group ?? (description ? 'Other types' : 'Published, without a description');

// isCovered is true for a type that is in the list, itself or by a pattern.
const isCovered = (type, list) => list.some((each) => each === type || (each.endsWith('*') && type.startsWith(each.slice(0, -1))));

// isReserved is true for the types of audit events and of tests. They have no dot, and nobody describes them.
const isReserved = ({ type, description }) => !type.includes('.') && !description;

// offer finds a text in types and descriptions, and brings each group together. With list, a group whose types begin with the same word
// has a first row for all of them.
function offer(types, text, list) {
  const found = types.filter((t) => `${t.type} ${t.description ?? ''}`.toLowerCase().includes(text)).map((t) => ({ ...t, key: t.type }));
  const groups = [...new Set(found.map(groupOf))];
  if (list) {
    for (const name of groups) {
      const firsts = found.filter((t) => groupOf(t) === name).map((t) => t.type.split('.')[0] + '.*');
      const [type] = firsts;
      if (firsts.length > 1 && firsts.every((each) => each === type) && !list.includes(type)) {
        found.unshift({ key: type, type, group: name, description: `All of ${name}` });
      }
    }
  }
  return found.sort((a, b) => groups.indexOf(groupOf(a)) - groups.indexOf(groupOf(b))).slice(0, most);
}

const show = ({ type, description }) => html`<span class="option-text"><bdi class="mono">${type}</bdi>
  ${description && html`<bdi class="small quiet">${description}</bdi>`}</span>`;
