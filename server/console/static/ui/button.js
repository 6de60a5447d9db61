// Buttons. A button says what happens: "Recover 47 events", never "OK".
import { html, cx } from './html.js';
import { Icon } from './icon.js';
import { useAction } from './hooks.js';

// A button that does nothing is aria-disabled and not disabled: the browser would take the focus away from it.
const blocked = (is) => (is ? 'true' : undefined);

// Button calls onClick, and does nothing until its promise ends, so a double click does nothing twice. kind: primary or danger.
// onError gets what was thrown, or null when it starts again.
export function Button({ onClick, onError, kind, icon, disabled, title, children }) {
  const { run, busy } = useAction(async () => {
    onError?.(null);
    try {
      await onClick?.();
    } catch (error) {
      onError?.(error);
    }
  });
  return html`<button type="button" class=${cx('button', kind, busy && 'busy')} aria-disabled=${blocked(disabled || busy)} aria-busy=${busy} title=${title}
    onClick=${disabled ? undefined : run}>
    ${icon && html`<${Icon} name=${icon} />`}<span>${children}</span>
  </button>`;
}

// SubmitButton sends the form around it, which says whether it is busy. Enter in a field clicks the button, too.
export const SubmitButton = ({ busy, kind = 'primary', disabled, children }) => html`<button type="submit"
  class=${cx('button', kind, busy && 'busy')} aria-disabled=${blocked(disabled || busy)} aria-busy=${busy}
  onClick=${(event) => { if (disabled || busy) event.preventDefault(); }}><span>${children}</span></button>`;

export const LinkButton = ({ href, kind, icon, children, ...rest }) =>
  href && html`<a class=${cx('button', kind)} href=${href} ...${rest}>${icon && html`<${Icon} name=${icon} />`}<span>${children}</span></a>`;
