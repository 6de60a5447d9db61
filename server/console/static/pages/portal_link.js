// The dialog that makes a portal link: a customer signs in with it to the console of one organization.
import { html, useState } from '../ui/html.js';
import { Dialog } from '../ui/dialog.js';
import { Copy } from '../ui/copy.js';
import { Form, TextField, SelectField, useForm } from '../ui/form.js';
import { Time } from '../ui/time.js';
import { useLoad } from '../ui/hooks.js';
import { Curl } from '../ui/curl.js';
import { api } from '../api.js';

const lives = [['300', '5 minutes'], ['3600', '1 hour'], ['86400', '1 day']];

export function PortalLink({ organization, name, onClose }) {
  const [link, setLink] = useState(null);
  const roles = useLoad((signal) => api.get('/roles/', { signal, query: { limit: 200 } }), []);
  const form = useForm({ role: 'customer', expires_in: '3600', return_url: '' }, async ({ role, expires_in: life, return_url: back }) => {
    setLink(await api.post(`/organizations/${organization.id}/portal-links/`,
      { role, expires_in: Number(life), ...(back.trim() && { return_url: back.trim() }) }));
  });
  const all = roles.data?.data ?? [{ name: 'customer', permissions: [] }];
  const role = all.find((r) => r.name === form.values.role);
  if (link) return html`<${Dialog} title="Portal link" wide onClose=${onClose}><${Made} link=${link} role=${form.values.role} name=${name} /><//>`;
  return html`<${Dialog} title=${html`Portal link to <bdi>${name}</bdi>`} onClose=${onClose}>
    <p>Whoever opens the link sees the console of this organization only, without an account.</p>
    <${Form} form=${form} submit="Create portal link">
      <${SelectField} form=${form} name="role" label="Role" options=${all.map((r) => [r.name, r.name])}
        hint=${role && `Allows ${role.permissions.filter((key) => !key.startsWith('platform:')).join(', ')}.`} />
      <${SelectField} form=${form} name="expires_in" label="Can be opened for" options=${lives}
        hint="The link works once. The session then ends after 12 hours." />
      <${TextField} form=${form} name="return_url" label="Return address" optional type="url"
        placeholder="https://example.com/settings" hint="The console shows a link back to it." />
    <//>
    <details><summary>The same from your back end</summary><${Curl}
      path=${`/organizations/${encodeURIComponent(organization.external_id ?? organization.id)}/portal-links/`}
      body=${`{"role": "${form.values.role}", "expires_in": ${form.values.expires_in}}`} /></details>
  <//>`;
}

const Made = ({ link, role, name }) => html`
  <p>It signs in to <strong><bdi>${name}</bdi></strong> with the role <strong>${role}</strong>.
    ${' '}It works once, until <${Time} value=${link.expires_at} form="exact" />.</p>
  <div class="secret-value"><code>${link.url}</code><${Copy} text=${link.url} label="Copy the link">Copy link<//></div>
  <p class="quiet">Send it to the customer only. It is not shown again. If you open it in this browser, you are signed out here.</p>`;
