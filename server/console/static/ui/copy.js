// Buttons that copy, and ids with such a button.
import { html, cx, useState, useRef, useEffect } from './html.js';
import { Icon } from './icon.js';

// kind is that of a button with a text. onCopied is called when the text was copied.
export function Copy({ text, label = 'Copy', kind, onCopied, children }) {
  const [done, setDone] = useState('');
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async (event) => {
    event.preventDefault();
    event.stopPropagation();
    const copied = await write(text);
    setDone(copied ? 'Copied' : 'Not copied: select the text');
    if (copied) onCopied?.();
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(''), 1500);
  };
  return html`<button type="button" class=${children ? cx('button', kind) : 'copy'} onClick=${copy}
      title=${children ? undefined : done || label}>
    <${Icon} name=${done === 'Copied' ? 'check' : 'copy'} />${children && (done || children)}</button>
    <span class="hidden-label" role="status">${done}</span>`;
}

// write copies a text. Browsers have a clipboard for scripts only over HTTPS and on this machine.
async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement('textarea');
    field.value = text;
    field.className = 'hidden-label';
    (document.querySelector('dialog[open]') ?? document.body).append(field);
    const before = document.activeElement;
    field.select();
    const copied = document.execCommand('copy');
    field.remove();
    before?.focus();
    return copied;
  }
}

// Id shows an id in monospace with a copy button. href makes it a link.
export const Id = ({ value, href }) => html`<span class="id">
  ${href ? html`<a class="mono cut" href=${href}>${value}</a>` : html`<span class="mono cut">${value}</span>`}
  <${Copy} text=${value} label=${`Copy ${value}`} />
</span>`;
