// The access tokens of a user: create, see the last use, revoke.
import { html, useState } from '../ui/html.js';
import { Section } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge, TwoLines } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Form, TextField, SelectField, useForm } from '../ui/form.js';
import { Secret } from '../ui/secret.js';
import { Empty } from '../ui/state.js';
import { Time } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { api } from '../api.js';
import { useQuery } from '../router.js';
import { can } from '../session.js';

const lives = [['7', '7 days'], ['30', '30 days'], ['90', '90 days'], ['365', '1 year'], ['', 'Never']];

// Tokens shows the tokens of a user. memberships name the organizations for which the user can have tokens.
export function Tokens({ user, memberships = [] }) {
  const [{ token: selected }] = useQuery();
  const path = `/users/${user.id}/access-tokens/`;
  const list = useList(path);
  const [open, setOpen] = useState(null); // 'new', or a token to revoke
  const [made, setMade] = useState(null);
  const writes = can('platform:write') && !user.erased_at;
  const names = new Map(memberships.map(({ organization }) => [organization.id, organization.name]));
  const columns = [
    { head: 'Token', main: true, cell: (t) => html`<${TwoLines} title=${t.name || 'Without a name'}>
      <code>${t.token_prefix}</code> in <bdi>${names.get(t.organization_id) ?? t.organization_id}</bdi><//>` },
    { head: 'Last use', size: 'm', wide: true, cell: (t) => html`<${Time} value=${t.last_used_at} none="Not used yet" />` },
    { head: 'Expires', size: 'm', wide: true, cell: (t) => html`<${Time} value=${t.expires_at} none="Never" />` },
    { head: 'Created', size: 'm', wide: true, cell: (t) => html`<${Time} value=${t.created_at} />` },
    { head: 'Status', size: 'l', cell: (t) => html`<span class="row spread"><${Badge} status=${t.status} />
      ${writes && t.status === 'active' && html`<button type="button" class="plain accent" onClick=${() => setOpen(t)}>Revoke…</button>`}</span>` },
  ];
  const create = writes && user.is_active && memberships.length > 0
    && html`<${Button} icon="plus" onClick=${() => setOpen('new')} disabled=${made !== null}>New access token<//>`;
  const created = async (token) => {
    setMade(token);
    setOpen(null);
    await list.reload();
  };
  const revoke = async () => {
    await api.delete(`${path}${open.id}/`);
    await list.reload();
    return `Revoked the access token ${open.name || open.token_prefix}.`;
  };
  return html`<${Section} title="Access tokens" actions=${create}>
    ${made && html`<${Secret} title=${`Access token ${made.name}`} value=${made.token} onDone=${() => setMade(null)}>
      <p>The user signs in to the console with it, and sends it as <code>Authorization: Bearer kat_…</code>.</p><//>`}
    <${Table} label="Access tokens" list=${list} columns=${columns} selected=${selected} skeleton=${2}
      empty=${html`<${Empty} title="No access token" text="With an access token, a user signs in to the console and calls the API, in one organization." />`} />
    ${open === 'new' && html`<${NewToken} path=${path} memberships=${memberships} created=${created} onClose=${() => setOpen(null)} />`}
    ${open && open !== 'new'
      && html`<${Confirm} title="Revoke this access token?" action="Revoke token" danger onConfirm=${revoke} onClose=${() => setOpen(null)}>
      <p><strong class="strong"><bdi>${open.name || open.token_prefix}</bdi></strong> ${open.last_used_at
        ? html`was last used <${Time} value=${open.last_used_at} />` : 'was never used'}.</p>
      <p>It is refused from the next request on. This cannot be undone. Sessions that began with it end.</p><//>`}
  <//>`;
}

function NewToken({ path, memberships, created, onClose }) {
  const form = useForm({ organization_id: memberships[0].organization.id, name: '', expires_at: '90' },
    async ({ organization_id: organization, name, expires_at: days }) => {
    const end = days && new Date(Date.now() + Number(days) * 864e5).toISOString();
    await created(await api.post(path, { organization_id: organization, ...(name.trim() && { name: name.trim() }), ...(end && { expires_at: end }) }));
  });
  return html`<${Dialog} title="New access token" onClose=${onClose}><${Form} form=${form} submit="Create access token">
    <${SelectField} form=${form} name="organization_id" label="Organization"
      options=${memberships.map(({ organization, role }) => [organization.id, `${organization.name} (${role})`])}
      hint="The token can do what the user’s role there allows." />
    <${TextField} form=${form} name="name" label="Name" optional placeholder="Laptop" autofocus />
    <${SelectField} form=${form} name="expires_at" label="Expires after" options=${lives} />
  <//><//>`;
}
