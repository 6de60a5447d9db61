// The users of all organizations.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Filters, TextFilter, NoneLike } from '../ui/filters.js';
import { Form, TextField, useForm } from '../ui/form.js';
import { Time, number } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate, useQuery } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';

export function Users() {
  const [{ search, sort }] = useQuery();
  const list = useList('/users/', { search }, { limit: 200 });
  const rows = list.rows && orders[sort] ? [...list.rows].sort(orders[sort]) : list.rows;
  const [open, setOpen] = useState(false);
  const create = can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New user<//>`;
  const columns = [
    { head: 'User', main: true, sort: 'name', cell: (u) => html`<span class="two-lines">
      <span class="cut strong" title=${nameOf(u)}>
        ${!u.is_active && html`<span class="narrow-only"><${UserStatus} user=${u} /> </span>`}
        <bdi>${nameOf(u)}</bdi></span>
      <bdi class="narrow-only cut small quiet">${emailOf(u)}</bdi><span class="narrow-only small"><${In} user=${u} /></span></span>` },
    { head: 'E-mail address', size: 'xl', wide: true, cell: (u) => html`<span class="cut quiet" title=${u.email}><bdi>${emailOf(u)}</bdi></span>` },
    { head: 'Organizations', size: 'xl', wide: true, sort: 'organization', cell: (u) => html`<${In} user=${u} />` },
    list.rows?.some((u) => u.external_id) && { head: 'External id', size: 'l', wide: true, roomy: true,
      cell: (u) => html`<span class="cut quiet" title=${u.external_id}><bdi>${u.external_id ?? '–'}</bdi></span>` },
    { head: 'Last use', size: 'm', sort: 'last_used_at', down: true, cell: (u) => html`<${Time} value=${u.last_used_at} />` },
    { head: 'Status', size: 's', wide: true, cell: (u) => html`<${UserStatus} user=${u} />` },
  ].filter(Boolean);
  return html`<${Page} title="Users" actions=${create}>
    <${Filters}><${TextFilter} name="search" label="Search" placeholder="Name, e-mail or external id" /><//>
    <${Table} label="Users" list=${{ ...list, rows }} columns=${columns} href=${(u) => href(paths.user(u.id))}
      empty=${html`<${NoneLike} title=${`No user begins with “${search}”`}
        text="The search compares the beginning of the name, the e-mail address and the external id." />`} />
    ${open && html`<${NewUser} onClose=${() => setOpen(false)} />`}
  <//>`;
}

const nameOf = (u) => u.name || u.email || 'Without a name';
const emailOf = (u) => u.email ?? (u.kind === 'service' ? 'Service account' : '–');

// The orders of the rows that are shown.
const compare = (of) => (a, b) => of(a).localeCompare(of(b));
const orders = {
  name: compare(nameOf), organization: compare((u) => u.newest_memberships[0]?.organization.name ?? '\uffff'),
  last_used_at: (a, b) => (b.last_used_at ?? '').localeCompare(a.last_used_at ?? ''),
};

// In shows the first organization of a user with the role, and how many more there are.
function In({ user: { memberships: n, newest_memberships: newest } }) {
  const [first, ...others] = newest.map((m) => `${m.organization.name} (${m.role})`);
  return first ? html`<span class="tags" title=${[first, ...others, n > 3 && '…'].filter(Boolean).join('\n')}><span class="cut"><bdi>${first}</bdi></span>
    ${n > 1 && html`<span class="quiet small nowrap">+${number(n - 1)}</span>`}</span>` : html`<span class="quiet">None</span>`;
}

export function UserStatus({ user }) {
  if (user.erased_at) return html`<${Badge} status="revoked" text="Erased" />`;
  return user.is_active ? html`<${Badge} status="active" />` : html`<${Badge} status="paused" text="Inactive" />`;
}

function NewUser({ onClose }) {
  const form = useForm({ email: '', name: '', external_id: '' }, async ({ email, name, external_id: external }) => {
    const user = await api.post('/users/',
      { email: email.trim(), ...(name.trim() && { name: name.trim() }), ...(external.trim() && { external_id: external.trim() }) });
    navigate(paths.user(user.id));
  });
  return html`<${Dialog} title="New user" onClose=${onClose}><${Form} form=${form} submit="Create user">
    <${TextField} form=${form} name="email" label="E-mail address" type="email" autofocus />
    <${TextField} form=${form} name="name" label="Name" optional />
    <${TextField} form=${form} name="external_id" label="External id" optional mono
      hint="The id of this person at your identity provider, or in your product." />
    <p class="quiet">Then add the user to an organization, and create an access token.</p>
  <//><//>`;
}
