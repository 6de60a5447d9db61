// The users of all organizations.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Filters, TextFilter, NoneLike } from '../ui/filters.js';
import { Form, TextField, useForm } from '../ui/form.js';
import { useList } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate, useQuery } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { Person } from './members.js';

export function Users() {
  const [{ search }] = useQuery();
  const list = useList('/users/', { search });
  const [open, setOpen] = useState(false);
  const create = can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New user<//>`;
  const columns = [
    { head: 'User', main: true, cell: (u) => html`<${Person} user=${u} />` },
    list.rows?.some((u) => u.external_id) && { head: 'External id', size: 'l', wide: true,
      cell: (u) => html`<span class="two-lines quiet"><span class="cut"><bdi>${u.external_id ?? '–'}</bdi></span></span>` },
    { head: 'Status', size: 'm', cell: (u) => html`<${UserStatus} user=${u} />` },
  ].filter(Boolean);
  return html`<${Page} title="Users" actions=${create}>
    <${Filters}><${TextFilter} name="search" label="Search" placeholder="Name, e-mail or external id" /><//>
    <${Table} label="Users" list=${list} columns=${columns} href=${(u) => href(paths.user(u.id))}
      empty=${html`<${NoneLike} title=${`No user begins with “${search}”`}
        text="The search compares the beginning of the name, the e-mail address and the external id." />`} />
    ${open && html`<${NewUser} onClose=${() => setOpen(false)} />`}
  <//>`;
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
