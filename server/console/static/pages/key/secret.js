// A new API key, after creation or rotation: the raw key once, and what it can do.
import { html } from '../../ui/html.js';
import { Facts, Section } from '../../ui/page.js';
import { Secret } from '../../ui/secret.js';
import { Code } from '../../ui/code.js';
import { quoted } from '../../ui/curl.js';
import { Bar } from '../../ui/state.js';
import { Time } from '../../ui/time.js';
import { href, navigate } from '../../router.js';
import { useSession } from '../../session.js';
import { settings } from '../../settings.js';
import { paths } from '../../paths.js';
import { Creator } from '../keys.js';
import { Scope } from './scope.js';
import { Explain } from './explain.js';

// NewSecret shows made, the response with the raw key. old is the key that it replaces, as it is now.
export function NewSecret({ made, old }) {
  const { me } = useSession();
  return html`<div class="stack loose">
    <${Secret} title="Copy the key now" value=${made.key} onDone=${() => navigate(paths.key(made.id), {}, { replace: true })}>
      ${old && html`<p>${old.status === 'active'
        ? html`The old key <code>${old.key_prefix}</code> works until <${Time} value=${old.expires_at} form="exact" />. Replace it before then.`
        : html`The old key <code>${old.key_prefix}</code> does not work any more. Replace it now.`}</p>`}
      <p>Try it. Every key may ask who it is:</p>
      <${Code} label="curl with the key"
        text=${`curl ${quoted(`${location.origin}${settings.base}/api/v1/whoami/`)} \\\n  -H "Authorization: ApiKey ${made.key}"`} />
    <//>
    ${made.scope_not_granted && html`<${Bar} tone="warning" title="Not everything was granted">
      <p>Nobody can grant what they do not hold: <code><bdi>${made.scope_not_granted}</bdi></code></p><//>`}
    <${Section} title="What can this key do?">
      <${Facts} items=${[
        ['Acts as', html`<${Creator} creator=${made.creator} />`],
        ['Expires', html`<${Time} value=${made.expires_at} form="exact" none="Never" />`],
        ['Requests', me.plan.api_rate_limit_per_minute === null ? 'Unlimited' : `${me.plan.api_rate_limit_per_minute} a minute`],
      ]} />
      <${Scope} scope=${made.scope} />
    <//>
    <${Section} title="Explain a request"><${Explain} id=${made.id} apiKey=${made} /><//>
  </div>`;
}

export const keyCrumbs = () => [['API keys', href(paths.keys)]];
