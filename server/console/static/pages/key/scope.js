// The permissions of an API key: shown, and picked by resource.
import { html, useState } from '../../ui/html.js';
import { FieldError } from '../../ui/form.js';
import { Icon } from '../../ui/icon.js';
import { Tag } from '../../ui/badge.js';
import { groupBy } from '../../ui/group.js';
import { count } from '../../ui/time.js';

export const words = (text = '') => text.split(/[\s,;"'[\]{}]+/).filter(Boolean);

const resourceOf = (key) => key.split(':')[0];
const actionOf = (key) => key.slice(resourceOf(key).length + 1) || key;

// byResource returns [[resource, [permission, …]], …]: read and write first.
function byResource(keys) {
  const rank = (key) => resourceOf(key) + ({ read: ' 0', write: ' 1' }[actionOf(key)] ?? actionOf(key));
  return [...groupBy([...keys].sort((a, b) => (rank(a) < rank(b) ? -1 : 1)), resourceOf)];
}

export const Scope = ({ scope }) => html`<span class="tags wrap">${byResource(words(scope)).flatMap(([, keys]) =>
  keys.map((key) => html`<${Tag} key=${key}>${key}<//>`))}</span>`;

// ScopeField picks permissions: held are those that can be picked. form.values.scope is an array, and may have others as well.
// about has a description for some of them.
export function ScopeField({ form, held, about }) {
  form.names.add('scope');
  const [search, setSearch] = useState('');
  const error = form.errorOf('scope');
  const chosen = new Set(form.values.scope);
  const set = (keys, on) => form.set('scope', on ? [...new Set([...form.values.scope, ...keys])] : form.values.scope.filter((k) => !keys.includes(k)));
  const text = search.trim().toLowerCase();
  const shown = held.filter((key) => !text || `${key} ${about.get(key) ?? ''}`.toLowerCase().includes(text));
  return html`<fieldset class="field">
    <legend>Permissions</legend>
    <${Paste} add=${(keys) => set(keys, true)}>
      <input class="input" type="search" aria-label="Search permissions" placeholder="Search permissions" value=${search}
        onInput=${(e) => setSearch(e.target.value)} onKeyDown=${(e) => e.key === 'Enter' && e.preventDefault()} />
    <//>
    <div class="scopes" tabindex="-1" aria-invalid=${error ? 'true' : undefined}>
      ${byResource(shown).map(([resource, keys]) => {
        const n = keys.filter((k) => chosen.has(k)).length;
        return html`<div key=${resource} class="scope-row">
          <label class="check"><input type="checkbox" aria-label=${`All of ${resource}`} checked=${n === keys.length} indeterminate=${n > 0 && n < keys.length}
            onChange=${(e) => set(keys, e.target.checked)} /><span class="strong cut"><bdi>${resource}</bdi></span></label>
          <div class="scope-actions">${keys.map((key) => html`<label key=${key} class="check" title=${about.get(key) ?? key}>
            <input type="checkbox" aria-label=${key} checked=${chosen.has(key)} onChange=${(e) => set([key], e.target.checked)} />
            <span><bdi>${actionOf(key)}</bdi></span></label>`)}</div>
        </div>`;
      })}
      ${shown.length === 0 && html`<p class="quiet small scope-row">
        ${text ? 'You hold no permission like this.' : 'You hold no permission that a key could get.'}</p>`}
    </div>
    <${FieldError} error=${error} />
  </fieldset>`;
}

// Paste takes a list of permissions. The preview says which of them are granted.
function Paste({ add, children }) {
  const [text, setText] = useState('');
  const [open, setOpen] = useState(false);
  const keys = words(text);
  if (!open) return html`<div class="scope-find">${children}<button type="button" class="button" onClick=${() => setOpen(true)}>Paste a list</button></div>`;
  const close = () => { setText(''); setOpen(false); };
  return html`<div class="stack tight">
    <textarea class="input mono" rows="3" aria-label="Permissions to add" placeholder="events:read orders:write" spellcheck="false" value=${text} autofocus
      onInput=${(e) => setText(e.target.value)} />
    <div class="row"><button type="button" class="button" disabled=${keys.length === 0}
      onClick=${() => { add(keys); close(); }}>Add ${count(keys.length, 'permission')}</button>
      <button type="button" class="button" onClick=${close}>Cancel</button></div>
  </div>`;
}

// Granted shows what a key would get of the chosen permissions, and what it would not. why(permission) says why not.
export function Granted({ chosen, held, about, why, remove }) {
  const has = new Set(held);
  const granted = chosen.filter((key) => has.has(key)).sort(), others = chosen.filter((key) => !has.has(key)).sort();
  return html`${granted.length === 0 && html`<p class="quiet">Nothing yet. Choose at least one permission.</p>`}
    <ul class="granted">${granted.map((key) => html`<li key=${key}><${Icon} name="ok" class="success" />
      <span><code>${key}</code> <span class="quiet small">${about.get(key)}</span></span></li>`)}</ul>
    ${others.length > 0 && html`<h3>Not granted</h3><ul class="granted">${others.map((key) => html`<li key=${key}><${Icon} name="bad" class="danger" />
      <span class="grow"><code><bdi>${key}</bdi></code> <span class="quiet small"><bdi>${why(key)}</bdi></span></span>
      <button type="button" class="plain" aria-label=${`Remove ${key}`} onClick=${() => remove(key)}><${Icon} name="cross" /></button></li>`)}</ul>`}`;
}
