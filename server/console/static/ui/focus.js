// The focus has a home: when the element with the focus goes away, the element that took its place gets the focus. So a person with a
// keyboard or a screen reader does not start at the top of the page after each act.

const focusable = 'a[href], button, input, select, textarea, summary, [tabindex]';

// Places follow an element: when it is removed, they go on to a neighbour.
const places = new Set();
const current = { element: null };

const firstIn = (node) => (node?.matches?.(focusable) ? node : node?.querySelector?.(focusable));

// neighbour returns what can have the focus beside nodes that were removed, or around them.
function neighbour({ target, nextSibling, previousSibling }) {
  const found = firstIn(nextSibling) ?? firstIn(previousSibling);
  for (let at = target; !found && at; at = at.parentElement) {
    const inside = at.querySelector(focusable);
    if (inside) return inside;
  }
  return found ?? null;
}

// keepFocus watches what goes away below root.
export function keepFocus(root) {
  places.add(current);
  document.addEventListener('focusin', (event) => { current.element = event.target; });
  document.addEventListener('focusout', (event) => queueMicrotask(() => { // a click beside everything, or Esc
    if (event.target === current.element && event.target.isConnected && document.activeElement === document.body) current.element = null;
  }));
  new MutationObserver((records) => {
    const had = current.element;
    for (const record of records) {
      for (const place of places) {
        if (place.element && [...record.removedNodes].some((node) => node.contains(place.element))) place.element = neighbour(record);
      }
    }
    if (current.element !== had && document.activeElement === document.body) current.element?.focus({ preventScroll: true });
  }).observe(root, { childList: true, subtree: true });
}

// rememberFocus returns a function that gives the focus back to the element that has it now, or to the one in its place.
export function rememberFocus() {
  const place = { element: document.activeElement };
  places.add(place);
  return () => {
    places.delete(place);
    place.element?.focus();
  };
}
