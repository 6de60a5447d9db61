// The frame of all pages: side bar, head, banner, and the keyboard.
import { html, cx, named, useState, useEffect } from '../ui/html.js';
import { useStore } from '../ui/store.js';
import { Icon, Mark } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { Count } from '../ui/badge.js';
import { Bar } from '../ui/state.js';
import { Told } from '../ui/told.js';
import { Confirm } from '../ui/dialog.js';
import { connection } from '../api.js';
import { place, href } from '../router.js';
import { settings } from '../settings.js';
import { session, useSession, isOperator, isShown, canSwitch, signOut, useLink } from '../session.js';
import { attention, useLook, useLooking } from '../look.js';
import { pages } from '../pages.js';
import { Search } from './search.js';
import { useColours } from './colours.js';
import { Switcher } from './switcher.js';
import { useKeyboard, Keys } from './keyboard.js';

export function Shell({ children }) {
  const { path } = useStore(place);
  const [open, setOpen] = useState(false); // the menu of a narrow screen
  const [keys, setKeys] = useState(false);
  useKeyboard({ showKeys: () => setKeys(true) });
  useEffect(() => setOpen(false), [path]);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <div class="shell">
      <${SideBar} open=${open} path=${path} />
      ${open && html`<div class="shade" onClick=${() => setOpen(false)} />`}
      <div class="body">
        <header class="head">
          <button type="button" class="plain menu-button" aria-label="Menu" aria-expanded=${open}
            onClick=${() => setOpen(!open)}><${Icon} name="menu" /></button>
          <${Search} />
          <${UserMenu} showKeys=${() => setKeys(true)} />
        </header>
        <${Away} />
        <${RefusedLink} />
        <${Told} />
        <main id="main" tabindex="-1">${children}</main>
      </div>
    </div>
    ${keys && html`<${Keys} onClose=${() => setKeys(false)} />`}
    <${OfferedLink} />`;
}

// OfferedLink asks before a one-time link replaces the session of somebody who is signed in.
function OfferedLink() {
  const { offeredLink, home } = useSession();
  if (!offeredLink) return null;
  const { link, who } = offeredLink;
  return html`<${Confirm} title="Sign in with this link?" action="Use the link"
    onConfirm=${() => useLink(link)} onClose=${() => session.set({ offeredLink: null })}>
    <p>You are signed in as <${Who} who=${home} />. The link ends this session and signs you in as
      ${' '}<${Who} who=${who} />. Use it only if you asked for it.</p><//>`;
}

const Who = ({ who: { user, organization } }) => html`<strong class="strong"><bdi>${user.kind === 'service' ? organization.name : user.name}</bdi></strong>`;

// Away says that the server does not answer. What was typed stays; the page goes on by itself.
function Away() {
  const { away } = useStore(connection);
  if (!away) return null;
  return html`<div class="away"><${Bar} tone="warning" title=${away}><p>Trying again. What you typed stays.</p><//></div>`;
}

// RefusedLink says what did not work, and that the earlier session goes on.
function RefusedLink() {
  const { refusedLink, home } = useSession();
  if (!refusedLink) return null;
  return html`<div class="away">
    <${Bar} tone="warning" title=${refusedLink.heading ?? (refusedLink.code === 'invalid_link' ? 'This link does not work' : 'The sign-in did not work')}>
    <p><bdi>${refusedLink.message}</bdi> You are still signed in as <${Who} who=${home} />.</p>
    <div><button type="button" class="button" onClick=${() => session.set({ refusedLink: null })}>Close</button></div><//></div>`;
}

function SideBar({ open, path }) {
  const { home, portal } = useSession();
  const { org } = useStore(place);
  useLooking();
  const own = attention(useLook().counts), all = attention(useLook(true).counts);
  const counts = { '/subscriptions/': own, '/': isOperator() && !org ? all : 0 };
  const shown = pages.filter((row) => row.nav && isShown(row) && (row.nav[0] !== 'Operator' || isOperator()));
  const groups = [...new Set(shown.map((row) => row.nav[0]))];
  const current = shown.filter((row) => path === row.path || (row.path !== '/' && path.startsWith(row.path))).sort((a, b) => b.path.length - a.path.length)[0];
  return html`<nav class=${cx('side', open && 'open')} aria-label="Pages">
    <a class="brand" href=${href('/')}><${Mark} /><span class="cut">${settings.name}</span></a>
    ${portal?.return_url && html`<a class="side-link back" href=${portal.return_url}>
      <${Icon} name="left" /><span class="cut">Back to ${new URL(portal.return_url).host}</span></a>`}
    ${canSwitch() ? html`<${Switcher} />`
      : html`<div class="organization small quiet" title=${home.organization.name}><bdi class="cut">${home.organization.name}</bdi></div>`}
    ${groups.map((group) => html`<div key=${group} class="side-group" role=${group ? 'group' : undefined} aria-label=${group || undefined}>
      ${group && html`<div class="side-title" aria-hidden="true">${group}</div>`}
      ${shown.filter((row) => row.nav[0] === group).map((row) => html`<a key=${row.path} class="side-link" href=${href(row.path)}
        aria-current=${row === current ? 'page' : undefined}><${Icon} name=${row.nav[1]} /><span class="grow">${named(row.title)}</span>
        <${Count} value=${counts[row.path]} label=${row.path === '/' ? 'need attention in all organizations' : 'need attention'} /></a>`)}
    </div>`)}
  </nav>`;
}

function UserMenu({ showKeys }) {
  const { home, portal } = useSession();
  const name = portal ? home.organization.name : home.user.name;
  const colours = useColours();
  return html`<${Menu} label=${`Signed in as ${name}`}
    trigger=${html`<${Icon} name="user" />${!portal && html`<span class="cut wide"><bdi>${name}</bdi></span>`}<${Icon} name="down" />`}
    items=${[
      ...colours,
      { text: 'Keyboard', icon: 'info', onClick: showKeys },
      { text: portal ? 'How to receive webhooks' : 'Documents', icon: 'audit', href: settings.base + (portal ? '/docs/receiving/' : '/docs/'),
        attributes: { target: '_blank', rel: 'noreferrer' } },
      { text: 'Sign out', icon: 'leave', onClick: signOut },
    ]} />`;
}
