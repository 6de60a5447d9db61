// The place of the page: its path and query below the root of the console, in the URL and in the history of the browser.
//
// Every link keeps the organization in which an operator acts (?org=), so a shared URL opens the same organization.
import { settings } from './settings.js';
import { createStore, useStore } from './ui/store.js';

const root = settings.root.replace(/\/$/, '');

export const place = createStore(read());

function read() {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  const { org = '', ...rest } = query;
  let path = location.pathname.slice(root.length) || '/';
  if (!path.endsWith('/')) path += '/';
  return { path, query: rest, org };
}

// href returns the URL of a page. query.org acts in another organization; '' in one's own.
export function href(path, query = {}) {
  return root + path + queryText({ org: place.get().org, ...query });
}

// queryText is the query of a URL, with its question mark. Empty values are left out.
export function queryText(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return given.length ? '?' + new URLSearchParams(given) : '';
}

export function navigate(path, query, { replace = false } = {}) {
  go(href(path, query), replace);
}

// go opens a URL of href.
export function go(url, replace = false) {
  if (!mayLeave(() => go(url, replace))) return;
  const samePath = new URL(url, location.href).pathname === location.pathname;
  const { inside, rows } = history.state ?? {};
  history[replace ? 'replaceState' : 'pushState']({ inside: !replace || inside, scroll: 0, rows: samePath ? rows : undefined }, '', url);
  place.set(read());
  if (!samePath) scrollTo(0, 0);
}

// useQuery returns the query of the page, and a function that changes some of its values. The back button undoes the change, unless it
// replaces the entry of the history.
export function useQuery() {
  const { query } = useStore(place);
  return [query, (changes, options) => navigate(place.get().path, { ...place.get().query, ...changes }, options)];
}

// inPlace is the option for what opens and closes, and is no step back: the URL has it, so that it can be shared.
export const inPlace = { replace: true };

const guards = new Set();

// confirmLeave keeps the page open while isLoss returns true, such as while a secret is shown, and calls ask instead. ask gets what goes
// on later, without a question. The browser itself asks before it closes the tab. confirmLeave returns the undo.
export function confirmLeave(isLoss, ask) {
  const guard = { isLoss, ask }, warn = (event) => { if (isLoss()) event.preventDefault(); };
  guards.add(guard);
  addEventListener('beforeunload', warn);
  return () => { guards.delete(guard); removeEventListener('beforeunload', warn); };
}

function mayLeave(goOn) {
  const guard = [...guards].find(({ isLoss }) => isLoss());
  guard?.ask(() => { guards.clear(); goOn(); });
  return !guard;
}

// match returns the parameters of a path that has the form of a pattern such as /events/{id}/, else null.
export function match(pattern, path) {
  const parts = pattern.split('/'), given = path.split('/');
  if (parts.length !== given.length) return null;
  const params = {};
  for (const [i, part] of parts.entries()) {
    if (part.startsWith('{')) params[part.slice(1, -1)] = decode(given[i]);
    else if (part !== given[i]) return null;
  }
  return params;
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// startRouter follows links, the buttons of the browser, and the scroll position.
export function startRouter() {
  history.scrollRestoration = 'manual';
  addEventListener('popstate', () => {
    if (read().path !== place.get().path && !mayLeave(() => history.back())) {
      history.forward(); // the back button has left the page already
      return;
    }
    place.set(read());
    restoreScroll(history.state?.scroll ?? 0);
  });
  let timer;
  addEventListener('scroll', () => {
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState({ ...history.state, scroll: scrollY }, ''), 150);
  }, { passive: true });
  document.addEventListener('click', followLink);
}

function followLink(event) {
  const link = event.target.closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (link.pathname !== root && !link.pathname.startsWith(root + '/')) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.href, link.href === location.href);
}

// restoreScroll waits up to a second for the content that was there.
function restoreScroll(top) {
  const end = performance.now() + 1000;
  const step = () => {
    scrollTo(0, top);
    if (Math.abs(scrollY - top) > 1 && performance.now() < end) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}
