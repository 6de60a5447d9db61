// A menu behind a button (⋯): less common acts. items are [{ text, icon?, href? or onClick?, danger?, disabled?, title? }]; falsy items are left out.
import { html, named, cx, useState, useRef, useEffect, useId } from './html.js';
import { Icon } from './icon.js';

export function Menu({ label = 'More', items, trigger }) {
  const [open, setOpen] = useState(false);
  const frame = useRef(null);
  const id = useId();
  const close = (focus = true) => {
    setOpen(false);
    if (focus) frame.current?.querySelector('button')?.focus();
  };
  useEffect(() => {
    if (!open) return undefined;
    frame.current.querySelector('[role="menuitem"]')?.focus();
    const outside = (event) => { if (!frame.current.contains(event.target)) setOpen(false); };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const onKeyDown = (event) => {
    if (!open) return;
    const all = [...frame.current.querySelectorAll('[role="menuitem"]:not(:disabled)')];
    const at = all.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all.at(next % all.length).focus();
    else if (event.key === 'Escape') close();
    else {
      if (event.key === 'Tab') close(false);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="menu" ref=${frame} onKeyDown=${onKeyDown}>
    <button type="button" class=${trigger ? 'menu-trigger' : 'button icon-only'}
      aria-haspopup="menu" aria-expanded=${open} aria-controls=${open ? id : undefined}
      aria-label=${trigger ? label : undefined} title=${trigger ? undefined : label} onClick=${() => setOpen(!open)}>
        ${trigger ?? html`<${Icon} name="more" />`}</button>
    ${open && html`<div class="menu-items end" role="menu" id=${id} aria-label=${label}>
      ${items.filter(Boolean).map((item) => html`<${Item} key=${item.text} item=${item} close=${close} />`)}
    </div>`}
  </div>`;
}

function Item({ item, close }) {
  const content = html`${item.icon && html`<${Icon} name=${item.icon} />`}<span>${named(item.text)}</span>`;
  const type = cx('menu-item', item.danger && 'danger');
  if (item.href) return html`<a role="menuitem" class=${type} href=${item.href} onClick=${() => close(false)} ...${item.attributes}>${content}</a>`;
  return html`<button type="button" role="menuitem" class=${type} disabled=${item.disabled} title=${item.title}
    onClick=${() => { close(); item.onClick(); }}>${content}</button>`;
}
