// Explain a request: would it pass with this key, and if not, which check fails and what mends that?
import { html, useEffect, useState, useId } from '../../ui/html.js';
import { Form, useForm, TextField, SelectField } from '../../ui/form.js';
import { Icon } from '../../ui/icon.js';
import { Bar } from '../../ui/state.js';
import { LinkButton } from '../../ui/button.js';
import { WithTimes } from '../../ui/time.js';
import { api, ApiError } from '../../api.js';
import { href, inPlace, useQuery } from '../../router.js';
import { can, isOperator, useSession } from '../../session.js';
import { paths } from '../../paths.js';
import { OrganizationButton } from '../keys.js';
import { words } from './scope.js';

// Explain asks about the API key with the given id, or with none about a key that one types. The question is in the URL if inUrl
// is set, but never a typed key, which may be a secret. apiKey is what is known about the key.
export function Explain({ id, apiKey, inUrl = false }) {
  const [query, setQuery] = useQuery();
  const [result, setResult] = useState(null);
  const given = inUrl ? query : {};
  const form = useForm({ key: '', method: given.method ?? 'GET', path: given.path ?? '', permission: given.permission ?? '', client_ip: '' }, async (v) => {
    setResult(null);
    const path = v.path.trim(), permission = words(v.permission).join(' '), key = id ?? v.key.trim();
    refuse('key', !key && 'Paste a key, its prefix or its id.');
    refuse('path', !path && !permission && 'Write the path of the request, or the permission that it needs.');
    setResult(await api.post('/auth/explain/', { key, method: v.method, path: path || '/api/v1/whoami/',
      permission: permission || undefined, client_ip: v.client_ip.trim() || undefined }));
    if (inUrl) setQuery({ method: v.method, path, permission }, inPlace);
  });
  useEffect(() => { if (id && (given.path || given.permission)) form.submit(); }, []);
  const list = useId();
  return html`<div class="columns two">
    <${Form} form=${form} free submit="Explain">
      ${!id && html`<${TextField} form=${form} name="key" label="API key" mono placeholder="svc_AbCdEf"
        hint="The whole key, its prefix, or its id. It is not stored, and the request is not counted." />`}
      <div class="method-path">
        <${SelectField} form=${form} name="method" label="Method" options=${['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].map((m) => [m, m])} />
        <${TextField} form=${form} name="path" label="Path" mono placeholder="/api/v1/events/" list=${list} dir="ltr" />
      </div>
      <datalist id=${list}>${['events', 'webhooks/subscriptions', 'api-keys', 'whoami'].map((p) =>
        html`<option key=${p} value=${`/api/v1/${p}/`} />`)}</datalist>
      <${TextField} form=${form} name="permission" label="Permission" optional mono placeholder="orders:read"
        hint="What your own API needs. What the paths of this service need is known." />
      ${apiKey?.allowed_networks.length > 0
        && html`<${TextField} form=${form} name="client_ip" label="Address of the client" optional mono placeholder="203.0.113.7" />`}
    <//>
    <div aria-live="polite">${result ? html`<${Verdict} result=${result} apiKey=${apiKey} />`
      : html`<p class="quiet">The result of each check appears here: the key, its creator, the plan, the rate limit and the permission.</p>`}</div>
  </div>`;
}

function refuse(field, message) {
  if (message) throw new ApiError({ title: 'Not sent', detail: message, errors: [{ field, message }] });
}

const statuses = { client_address_not_allowed: 403, plan_capability_required: 403, permission_denied: 403, rate_limited: 429 }; // of the others: 401
const names = {
  parse: 'Checksum', lookup: 'Key', revoked: 'Not revoked', expired: 'Not expired', creator: 'Creator', client_address: 'Network', plan: 'Plan',
  rate_limit: 'Rate limit', organization: 'Organization', permission: 'Permission',
};
const icons = { passed: ['ok', 'success'], failed: ['bad', 'danger'] }; // others are left out

function Verdict({ result, apiKey }) {
  const failed = result.checks.find((c) => c.verdict === 'failed');
  const needed = result.checks.find((c) => c.check === 'permission');
  return html`<div class="stack">
    <${Bar} tone=${failed ? 'danger' : 'success'} title=${failed ? `Refused: ${statuses[result.code] ?? 401} ${result.code}` : 'Allowed'}>
      <p><${WithTimes} text=${(failed ?? needed).detail} /></p>
      ${failed && html`<${Mend} failed=${failed} result=${result} apiKey=${apiKey} />`}
      ${!apiKey && result.key_id && html`<a href=${href(paths.key(result.key_id))}>Open this key</a>`}
    <//>
    <ol class="checks">${result.checks.filter((c) => icons[c.verdict]).map((c) => html`<li key=${c.check}>
      <${Icon} name=${icons[c.verdict][0]} class=${icons[c.verdict][1]} /><span class="strong">${names[c.check]}</span>
      <span class="quiet">${c === failed ? html`<bdi>${c.value || 'Failed'}</bdi>` : html`<${WithTimes} text=${c.detail} />`}</span></li>`)}</ol>
    ${failed && failed !== needed && html`<p class="quiet small">The checks after this one were not made.</p>`}
  </div>`;
}

// Mend is a button that mends what has failed, if one may.
function Mend({ failed, result, apiKey }) {
  const { me: { plan } } = useSession();
  const needed = words(result.permission);
  let button = null;
  if (['revoked', 'expired', 'permission'].includes(failed.check) && plan.api_keys && can('api_keys:write') && needed.every(can)) {
    const scope = [...new Set([...words(apiKey?.scope), ...needed])].join(' ');
    button = html`<${LinkButton} icon="plus" href=${href(paths.keyNew, { name: apiKey?.name, scope })}>Create a key that may do this<//>`;
  } else if (failed.check === 'creator' && isOperator()) {
    button = html`<${LinkButton} href=${href(paths.user(failed.value))}>Open the creator<//>`;
  } else if (['plan', 'rate_limit'].includes(failed.check) && isOperator()) {
    button = html`<${OrganizationButton} />`;
  }
  return button && html`<div class="row">${button}</div>`;
}
