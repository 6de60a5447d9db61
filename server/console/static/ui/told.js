// What was done, in a bar below the head, until another page is opened: "Keyhook sends 12 events again."
import { html, named } from './html.js';
import { Icon } from './icon.js';
import { createStore, useStore } from './store.js';
import { place } from '../router.js';

// acts grows with each act, so that what counts can count again.
export const told = createStore({ text: '', acts: 0 });

export const tell = (text) => told.set(({ acts }) => ({ text: named(text), acts: acts + 1 }));

let { path } = place.get();
place.subscribe(() => {
  if (path !== place.get().path) told.set({ text: '' });
  path = place.get().path;
});

function close() {
  told.set({ text: '' });
  document.getElementById('main').focus({ preventScroll: true });
}

// The element stays, because screen readers hear only what changes in it.
export function Told() {
  const { text } = useStore(told);
  return html`<div class="told" role="status" aria-label="What was done">${text && html`<div class="bar success">
    <${Icon} name="ok" class="success" /><strong class="strong grow"><bdi>${text}</bdi></strong>
    <button type="button" class="plain" aria-label="Close the message" onClick=${close}><${Icon} name="cross" /></button></div>`}</div>`;
}
