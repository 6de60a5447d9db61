// Sign-in: by access token, or with the identity provider. A one-time link signs in before this is shown.
import { html, useEffect } from '../ui/html.js';
import { useStore } from '../ui/store.js';
import { Mark } from '../ui/icon.js';
import { Dialog } from '../ui/dialog.js';
import { Form, TextField, useForm } from '../ui/text_form.js';
import { Bar, ErrorBar } from '../ui/state.js';
import { LinkButton } from '../ui/button.js';
import { settings } from '../settings.js';
import { place } from '../router.js';
import { refusals } from './refusals.js';
import { portalWas, useSession, session, signIn, signOut } from '../session.js';

export function SignIn() {
  const { error } = useSession();
  const back = portalWas(), isPortal = back !== null, isLink = error?.code === 'invalid_link';
  const title = isPortal ? 'Your session has ended' : 'Sign in';
  useEffect(() => { document.title = `${title} · ${settings.name}`; }, []);
  return html`<main class="sign-in">
    <div class="stack">
      <div class="brand large"><${Mark} /><span>${settings.name}</span></div>
      <h1>${title}</h1>
      ${isLink ? html`<${Bar} tone="warning" title="This link does not work"><p><bdi>${error.message}</bdi></p><//>`
        : html`<${ErrorBar} error=${error} title=${refusals[error?.code] && 'The sign-in did not work'} />`}
      ${isPortal ? html`<${BackToApplication} url=${back} />
        <details class="more-options"><summary>Sign in with an access token</summary><div><${Ways} /></div></details>` : html`<${Ways} />`}
      ${!isPortal && !settings.oidc && !isLink && html`<p class="small quiet">The first start of Keyhook prints a link that signs you in once.
        ${' '}<code>keyhook token create</code> makes an access token.</p>`}
    </div>
  </main>`;
}

// BackToApplication is for customers, who came with a link.
const BackToApplication = ({ url, children }) => html`<p>Open this page again from the application that brought you here.</p>
  <div class="row">${url && html`<${LinkButton} kind="primary" href=${url}>Back to ${new URL(url).host}<//>`}${children}</div>`;

// SignInAgain is over the page when the session has ended. The page stays as it is, with what was typed.
export function SignInAgain() {
  const { home, portal } = useSession();
  if (portal) {
    return html`<${Dialog} title="Your session has ended" fixed>
      <${BackToApplication} url=${portal.return_url}><button type="button" class="plain link" onClick=${signOut}>Leave this page</button><//><//>`;
  }
  return html`<${Dialog} title="Your session has ended" fixed>
    <p>Sign in as <strong><bdi>${home.user.name}</bdi></strong> to go on where you are. What you typed is still there.</p>
    <${Ways} again />
    <div class="row"><button type="button" class="plain link" onClick=${signOut}>Leave this page</button></div>
  <//>`;
}

// startPath leads to the identity provider, and back to this page. To sign in again, it opens in another tab: this one keeps what was typed.
const startPath = () => `${settings.root}oidc/start/?${new URLSearchParams({ to: location.pathname.slice(settings.base.length) + location.search })}`;

function Ways({ again = false }) {
  useStore(place); // the link leads to the page of the URL
  const form = useForm({ token: '' }, async ({ token }) => {
    session.set({ error: null });
    await signIn(token.trim()).catch((refused) => {
      if (refused.status === 401) refused.fields = { token: refused.message };
      throw refused;
    });
  });
  return html`
    ${settings.oidc && html`<${LinkButton} href=${startPath()} kind="primary"
      target=${again ? '_blank' : '_self'} rel="noreferrer" icon="user">Sign in with your account<//>
      <p class="or small quiet"><span>or</span></p>`}
    <${Form} form=${form} free submit="Sign in" kind=${settings.oidc ? '' : 'primary'}>
      <${TextField} form=${form} name="token" label="Access token" type="password" mono placeholder="kat_…" autofocus=${!settings.oidc} />
    <//>`;
}
