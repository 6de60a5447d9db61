// Who is signed in, and the organization in which the page acts.
import { setPortal, named } from './ui/html.js';
import { api, ApiError, actIn, onSignedOut } from './api.js';
import { href, place } from './router.js';
import { settings } from './settings.js';
import { refusals } from './shell/refusals.js';
import { announceNextPage } from './ui/page.js';
import { createStore, useStore } from './ui/store.js';

// status: 'starting', 'out', 'in', or 'lost' if the organization of the URL does not exist.
// me: who acts, in the organization of the page. home: the same person in the own organization. Both are bodies of whoami.
// refusedLink: the error of signing in or out, while a session goes on.
// offeredLink: { link, who } of a one-time link that would sign in somebody else than who is signed in.
// ended: the session has ended while a page is open; what was typed stays.
export const session = createStore({ status: 'starting', me: null, home: null, portal: null, ended: false, error: null, refusedLink: null, offeredLink: null });

export const useSession = () => useStore(session);

export const can = (permission) => {
  const { me, home } = session.get();
  return (me ?? home)?.permissions.includes(permission) ?? false;
};

// isOperator reports whether somebody sees pages of the whole instance. A session of a portal link never does.
export const isOperator = () => can('platform:read') && !session.get().portal;

// itself is the server as a customer knows it: the name of the host, if it has set one.
export const itself = /keyhook/i.test(settings.name) ? 'this service' : settings.name;

// said is a sentence of the API in the words of the reader: only operators know the program and its settings.
export const said = (text) => (isOperator() ? text : named(text).replace(/needs egress\.allowed_networks/, 'is refused')
  .replace(/ \(\w+\.\w+: ([^)]+)\)/g, ' ($1)')
  .replace(/(?<!to )publish it again/, (text) => (can('events:write') ? text : `ask ${itself} to ${text}`))
  .replace(/([.:] |)(Keyhook|an operator)/gi, (found, start, name, at) => {
    const words = name === 'Keyhook' ? itself : 'the provider of this service';
    return start || at === 0 ? start + words[0].toUpperCase() + words.slice(1) : words;
  }));

// isShown reports whether somebody sees a page. The host chooses the pages of a portal. The overview is about subscriptions.
export const isShown = ({ path, needs }) => can(needs) && (!session.get().portal || settings.portal.includes(path.split('/')[1] || 'subscriptions'));

// linkTo is href of a page that is shown, else undefined.
export const linkTo = (path, needs, query) => (isShown({ path, needs }) ? href(path, query) : undefined);

// actsEverywhere reports whether somebody may act in all organizations, whoever belongs to them.
export const actsEverywhere = () => {
  const { home, portal } = session.get();
  return !portal && ['platform:read', 'platform:act_as'].every((permission) => home?.permissions.includes(permission));
};

// canSwitch reports whether somebody may act in other organizations: in all, or in several as a member.
export const canSwitch = () => actsEverywhere() || session.get().home?.organizations.length > 1;

// actingIn is how requests and URLs name an organization: '' for one's own.
export const actingIn = (id) => (id === session.get().home.organization.id ? '' : id);

const asMyself = { signIn: false, organization: '' }; // of requests about the session

let signedInAgain = [];

export async function startSession() {
  onSignedOut(() => {
    session.set({ ended: true });
    return new Promise((resolve) => signedInAgain.push(resolve));
  });
  const refusal = takeRefusal();
  const link = takeLink();
  await (link ? follow(link) : load(refusal));
  addEventListener('hashchange', () => { // a link was pasted into this tab
    const pasted = takeLink();
    if (pasted) follow(pasted);
  });
  place.subscribe(() => act(place.get().org));
}

// takeLink returns the secret of the one-time link of the URL, and removes it from the URL; null if there is none.
function takeLink() {
  const link = new URLSearchParams(location.hash.slice(1)).get('link');
  if (link) history.replaceState(history.state, '', location.pathname + location.search); // it must not stay in the history
  return link;
}

// follow signs in with a one-time link. If somebody else is signed in, the server refuses it, and the page asks first: anybody can send a
// link of their own, and what is done after it belongs to the sender. If the link does not work, an earlier session goes on.
async function follow(link, replace = false) {
  try {
    await api.post('/session/', { link, replace }, asMyself);
    await load();
  } catch (refused) {
    if (refused.code === 'signed_in_as_other') await offer(link);
    else await load(refused);
  }
}

// offer asks whether a link may end the session of somebody else.
async function offer(link) {
  try {
    const who = await api.post('/session/', { link, dry_run: true }, asMyself);
    await load();
    session.set({ offeredLink: { link, who } });
  } catch (refused) {
    await load(refused);
  }
}

// useLink exchanges a one-time link for a session, after the person has agreed.
export function useLink(link) {
  session.set({ offeredLink: null });
  return follow(link, true);
}

// takeRefusal returns why a sign-in with the identity provider was refused, and removes it from the URL; null if it was not.
function takeRefusal() {
  const query = new URLSearchParams(location.search);
  const code = query.get('error');
  if (!code || place.get().path !== '/') return null;
  const error = new ApiError({ code, detail: refusals[code] ?? 'The sign-in did not work. Try again.', request_id: query.get('request_id') ?? '' });
  history.replaceState(history.state, '', location.pathname + location.hash);
  return error;
}

async function load(error = null) {
  try {
    await enter(await api.get('/session/', asMyself), error);
  } catch (refused) {
    if (!(refused instanceof ApiError)) throw refused;
    leave(error ?? (refused.status === 401 ? null : refused));
  }
}

function leave(error = null) {
  wanted = null;
  actIn('');
  session.set({ status: 'out', me: null, home: null, portal: null, ended: false, error });
}

// The tabs of a browser share the session, so each looks again when another has signed in or out.
const tabs = new BroadcastChannel(settings.root);
tabs.onmessage = () => load();

let wanted = null; // the organization of the latest call of act

// act makes the page act in an organization. Operators name another one in the URL.
async function act(org, always = false) {
  const { home } = session.get();
  if (!home || org === wanted && !always) return;
  wanted = org;
  const own = org === '' || org === home.organization.id;
  actIn(own ? '' : org);
  try {
    const me = own ? home : await api.get('/whoami/', { organization: org });
    if (wanted === org) session.set({ status: 'in', me, error: null });
  } catch (refused) {
    if (wanted === org) session.set({ status: 'lost', error: refused });
  }
}

// signIn exchanges an access token for a session. It throws what the API refuses.
export async function signIn(token) {
  const home = await api.post('/session/', { token }, asMyself);
  if (!session.get().home) announceNextPage(); // else a page is open already
  await enter(home);
}

// enter begins or continues a session. For another person, all pages start afresh.
async function enter(home, refusedLink = null) {
  const { home: before, ended } = session.get();
  const isOther = before?.user.id !== home.user.id || before.organization.id !== home.organization.id;
  if (home.portal && !URL.canParse(home.portal.return_url)) home.portal.return_url = null;
  session.set({ home, portal: home.portal ?? null, ended: false, error: null, refusedLink });
  setPortal(Boolean(home.portal));
  rememberPortal(home.portal);
  if (isOther) session.set({ me: null });
  if (isOther || ended) tabs.postMessage('');
  await act(place.get().org, true);
  const waiting = signedInAgain;
  signedInAgain = [];
  for (const goOn of waiting) goOn();
}

// A tab remembers that it showed a portal: a customer comes back from the application that made the link.
const portalKey = 'keyhook-portal';

// portalWas is the address of that application, or empty; null in a tab without a portal.
export function portalWas() {
  try { return sessionStorage.getItem(portalKey); } catch { return null; }
}

function rememberPortal(portal) {
  try {
    if (portal) sessionStorage.setItem(portalKey, portal.return_url ?? '');
    else sessionStorage.removeItem(portalKey);
  } catch { /* the browser keeps nothing for this page */ }
}

export async function signOut() {
  const refused = await api.delete('/session/', asMyself).catch((error) => error);
  if (refused && refused.status !== 401 && refused.status !== 404) {
    refused.heading = 'Signing out did not work';
    return session.set({ refusedLink: refused });
  }
  const back = session.get().portal?.return_url;
  tabs.postMessage('');
  if (back) location.assign(back); // there is no other way to sign in for a customer
  else leave();
}
