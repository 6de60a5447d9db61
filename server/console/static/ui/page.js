// The frame of a page: crumbs, heading, actions and content. It sets the title of the window.
import { html, cx, named, breakable, useEffect, useRef } from './html.js';
import { Icon } from './icon.js';
import { settings } from '../settings.js';

// entered is set by the router: the next heading gets the focus, so a screen reader says where one is.
let entered = false;
export function announceNextPage() { entered = true; }

// title is text. crumbs are [[name, href]]. aside is beside the heading, such as a status.
export function Page({ title, crumbs = [], aside, actions, children }) {
  const head = useRef(null);
  useEffect(() => { document.title = `${named(title)} · ${settings.name}`; }, [title]);
  useEffect(() => {
    if (entered) head.current.focus({ preventScroll: true });
    entered = false;
  }, []);
  return html`<div class="page">
    <header class="page-head">
      <div class="grow">
        ${crumbs.length > 0 && html`<nav class="crumbs" aria-label="You are here">
          ${crumbs.map(([name, url]) => html`<a key=${url} href=${url}><${Icon} name="left" />${named(name)}</a>`)}
        </nav>`}
        <div class="row">
          <h1 tabindex="-1" ref=${head} aria-label=${named(title)}><bdi>${breakable(named(title))}</bdi></h1>
          ${aside}
        </div>
      </div>
      ${actions && html`<div class="row actions">${actions}</div>`}
    </header>
    ${children}
  </div>`;
}

export const Section = ({ title, actions, children }) => html`<section class="stack tight section">
  <div class="row spread"><h2>${title}</h2>${actions && html`<div class="row">${actions}</div>`}</div>
  ${children}
</section>`;

// Facts are names with values: [[name, value]]. Values are text or elements; null is left out. across sets them side by side.
export const Facts = ({ items, across }) => html`<dl class=${cx('facts', across && 'across')}>
  ${items.filter((item) => item && item[1] !== null && item[1] !== undefined).map(([name, value]) =>
    html`<div key=${name}><dt>${named(name)}</dt><dd><bdi>${value}</bdi></dd></div>`)}
</dl>`;
