// The start: the session, then the page that the URL names.
import { html, render, Component, useLayoutEffect, useRef } from './ui/html.js';
import { useStore } from './ui/store.js';
import { keepFocus } from './ui/focus.js';
import { announceNextPage, Page } from './ui/page.js';
import { Bar, Empty, ErrorBar } from './ui/state.js';
import { LinkButton } from './ui/button.js';
import { startRouter, place, href, navigate } from './router.js';
import { startSession, useSession, can, isShown } from './session.js';
import { pages } from './pages.js';
import { Loaded, loadFirst, pageOf, usePreload } from './load.js';
import { Shell } from './shell/shell.js';
import { SignIn, SignInAgain } from './shell/sign_in.js';

function App() {
  const session = useSession();
  if (session.status === 'starting') return null;
  if (session.status === 'out') return html`<${SignIn} />`;
  return html`
    <${Shell} key=${session.home.user.id}>
      ${session.status === 'lost' ? html`<${Lost} error=${session.error} />` : session.me && html`<${Current} key=${session.me.organization.id} />`}
    <//>
    ${session.ended && html`<${SignInAgain} />`}`;
}

// Current is the page of the URL. It starts afresh when the path or the organization changes, and stays when the query changes.
function Current() {
  const { path } = useStore(place);
  usePreload(useSession().me);
  const shown = useRef(path);
  if (shown.current !== path) announceNextPage();
  useLayoutEffect(() => { shown.current = path; }, [path]);
  const first = pages.find((row) => row.nav && isShown(row));
  const elsewhere = path === '/' && first && first.path !== '/'; // somebody who may not see the overview
  useLayoutEffect(() => { if (elsewhere) navigate(first.path, {}, { replace: true }); }, [elsewhere]);
  if (elsewhere) return null;
  const [row, params] = pageOf(path);
  if (!row || (can(row.needs) && !isShown(row))) return html`<${Missing} />`;
  if (row.needs && !can(row.needs)) return html`<${Forbidden} row=${row} />`;
  return html`<${Guard} key=${path}><${Loaded} row=${row} params=${params} /><//>`;
}

const Missing = () => html`<${Page} title="There is no such page">
  <${Empty} title="Nothing is here" text="The address may be incomplete. Search for what you are looking for, or go to the first page.">
    <${LinkButton} href=${href('/')}>First page<//><//><//>`;

const Forbidden = ({ row }) => html`<${Page} title=${row.title}>
  <${Bar} tone="warning" title="Your role does not show this page">
    <p>It needs the permission <code>${row.needs}</code>. An owner of the organization, or
    the provider of this service, can give you a role that has it.</p><//><//>`;

const Lost = ({ error }) => html`<${Page} title="There is no such organization">
  ${error.status === 404 ? html`<p>It was closed, or its id in the address is wrong.</p>` : html`<${ErrorBar} error=${error} />`}
  <div class="row"><${LinkButton} href=${href('/', { org: '' })}>Open your own organization<//></div><//>`;

// Guard shows a defect of a page instead of an empty window.
class Guard extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }
  render({ children }, { error }) {
    if (!error) return children;
    return html`<${Page} title="This page has a defect"><${ErrorBar} error=${error} title="The page stopped working" retry=${() => location.reload()} /><//>`;
  }
}

startRouter();
loadFirst(pageOf(place.get().path)[0]);
keepFocus(document.getElementById('app'));
render(html`<${App} />`, document.getElementById('app'));
startSession();
