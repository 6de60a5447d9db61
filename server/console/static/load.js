// Loading the modules of pages: when a page is opened, or before, while the browser has nothing to do.
import { html, useState, useEffect } from './ui/html.js';
import { Page } from './ui/page.js';
import { ErrorBar } from './ui/state.js';
import { api } from './api.js';
import { pages } from './pages.js';
import { match } from './router.js';
import { can } from './session.js';

// pageOf returns the row of the page at a path, and the parameters of the path.
export function pageOf(path) {
  for (const row of pages) {
    const params = match(row.path, path);
    if (params) return [row, params];
  }
  return [];
}

const loaded = new Map(); // the components by their rows

async function load(row) {
  loaded.set(row, (await row.from())[row.page]);
}

// loadFirst loads the module of the page that is opened first, while the session is asked for. Pages of operators wait for it.
export function loadFirst(row) {
  if (row && !row.needs.startsWith('platform:')) load(row).catch(() => {}); // the page tells
}

export function Loaded({ row, params }) {
  const [, render] = useState(null);
  const [error, setError] = useState(null);
  const page = loaded.get(row);
  useEffect(() => {
    if (!page) load(row).then(() => render({})).catch(() => reloadOnce().then(setError, setError));
  }, [row]);
  if (error) return html`<${Page} title=${row.title}><${ErrorBar} error=${error} retry=${() => location.reload()} /><//>`;
  return page && html`<${page} ...${params} />`;
}

// reloadOnce waits until the server answers. A newer version of it has other files, so the whole page is loaded again. If that
// does not help, the result is an error.
async function reloadOnce() {
  await api.get('/session/', { signIn: false, organization: '' }).catch(() => {});
  if (history.state?.reloaded) return { message: 'A part of the console was not loaded.' };
  history.replaceState({ ...history.state, reloaded: true }, '');
  location.reload();
  return null;
}

const whenIdle = window.requestIdleCallback ?? ((act) => setTimeout(act, 500)); // Safari has no idle callbacks
const cancelIdle = window.cancelIdleCallback ?? clearTimeout;

// usePreload loads the other pages that somebody may see, one after another.
export function usePreload(me) {
  useEffect(() => {
    const rest = pages.filter((row) => !loaded.has(row) && can(row.needs));
    const next = () => {
      const row = rest.shift();
      if (row) load(row).then(plan, () => {}); // the page tells, if it is opened
    };
    let id;
    const plan = () => { id = whenIdle(next); };
    if (me) plan();
    return () => cancelIdle(id);
  }, [me?.organization.id]);
}
