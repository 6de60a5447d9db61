// The keyboard: / search, j and k for rows, Enter opens, Esc goes back, ? shows the keys.
import { html, useEffect } from '../ui/html.js';
import { Dialog } from '../ui/dialog.js';

const typing = 'input, textarea, select, [contenteditable]';

export function useKeyboard({ showKeys }) {
  useEffect(() => {
    const onKeyDown = (event) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (event.target.closest(typing)) {
        if (event.key === 'Escape') event.target.blur();
        return;
      }
      const act = {
        '/': () => document.getElementById('search')?.focus(),
        '?': showKeys,
        j: () => moveRow(1),
        k: () => moveRow(-1),
        Escape: back,
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, []);
}

// moveRow moves the focus between the links of rows, so Enter opens the row.
function moveRow(step) {
  const links = [...document.querySelectorAll('[data-rows] .row-link')];
  if (!links.length) return;
  const at = links.findIndex((link) => link.closest('tr, li').contains(document.activeElement));
  const selected = links.findIndex((link) => link.getAttribute('aria-current') === 'true');
  const from = at >= 0 ? at : selected;
  const next = links[Math.min(Math.max(from + step, 0), links.length - 1)];
  next.focus({ preventScroll: true });
  next.closest('tr, li').scrollIntoView({ block: 'nearest' });
}

// back closes what is open beside the list, then leaves the row, and then the page: to the page that its last crumb names.
function back() {
  const close = document.querySelector('[data-close]');
  const up = [...document.querySelectorAll('.crumbs a')].at(-1);
  if (close) close.click();
  else if (document.activeElement?.closest('[data-rows]')) document.activeElement.blur();
  else if (up && history.state?.inside) history.back();
  else up?.click();
}

const keys = [
  ['/', 'Search'], ['j', 'Next row'], ['k', 'Previous row'], ['Enter', 'Open the row'], ['Esc', 'Back'], ['?', 'This list'],
];

export const Keys = ({ onClose }) => html`<${Dialog} title="Keyboard" onClose=${onClose}>
  <dl class="facts">${keys.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
<//>`;
