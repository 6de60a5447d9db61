// The permissions: what a request needs. Operators add those of their own product.
import { html, useState } from '../ui/html.js';
import { Page, Facts, Section } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Button } from '../ui/button.js';
import { Tag, Tags } from '../ui/badge.js';
import { Dialog } from '../ui/dialog.js';
import { Form, TextField, CheckField, useForm } from '../ui/form.js';
import { Empty, Loading } from '../ui/state.js';
import { useList, useLoad } from '../ui/hooks.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { href, navigate } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { Deletion } from './ending.js';

const origin = (p) => (p.built_in ? 'Built in' : p.internal ? 'Internal' : 'Your product');

export function Permissions() {
  const list = useList('/permissions/', {}, { id: (p) => p.key });
  const [open, setOpen] = useState(false);
  const columns = [
    { head: 'Permission', main: true, size: 'l', cell: (p) => html`<span class="two-lines"><code class="strong"><bdi>${p.key}</bdi></code></span>` },
    { head: 'Allows to', wide: true,
      cell: (p) => html`<span class="two-lines"><span class="cut" title=${p.description}><bdi>${p.description}</bdi></span></span>` },
    { head: 'Roles that have it', cell: (p) => html`<${Tags} values=${p.roles} most=${4} />` },
    { head: 'Kind', size: 'm', wide: true, cell: (p) => html`<span class="quiet">${origin(p)}</span>` },
  ];
  return html`<${Page} title="Permissions"
    actions=${can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New permission<//>`}>
    <${Table} label="Permissions" list=${list} columns=${columns} rowKey=${(p) => p.key} href=${(p) => href(paths.permission(p.key))}
      empty=${html`<${Empty} title="No permission yet" />`} />
    ${open && html`<${NewPermission} onClose=${() => setOpen(false)} />`}
  <//>`;
}

function NewPermission({ onClose }) {
  const form = useForm({ key: '', description: '', internal: false }, async (values) => {
    const created = await api.post('/permissions/', { ...values, key: values.key.trim() });
    navigate(paths.permission(created.key));
  });
  const { key, internal } = form.values;
  return html`<${Dialog} title="New permission" onClose=${onClose}><${Form} form=${form} submit="Create permission">
    <${TextField} form=${form} name="key" label="Key" placeholder="orders:read"
      hint="Words of lower-case letters, digits and _, joined by colons. It cannot be changed." mono autofocus />
    <${TextField} form=${form} name="description" label="Allows to" placeholder="Read orders" optional />
    <${CheckField} form=${form} name="internal" label="Internal" hint="For your own staff: no built-in role has it, except operator." />
    ${key && html`<p class="quiet" role="status">${internal ? 'The role operator has it from now on.'
      : `The roles operator, owner${key.trim().endsWith(':read') ? ', customer and member' : ' and customer'} have it from now on.`}</p>`}
  <//><//>`;
}

export function Permission({ permission: key }) {
  const { data: found, error, reload } = useLoad((signal) => api.get(`/permissions/${encodeURIComponent(key)}/`, { signal }), [key]);
  const [deleting, setDeleting] = useState(false);
  const writes = can('platform:write') && found && !found.built_in;
  return html`<${Page} title=${key} crumbs=${[['Permissions', href(paths.permissions)]]}
    aside=${found && html`<span class="quiet">${origin(found)}</span>`}
    actions=${writes && html`<${Button} onClick=${() => setDeleting(true)}>Delete permission…<//>`}>
    ${(error || !found) && html`<${Loading} error=${error} retry=${reload} rows=${4} />`}
    ${found && (can('platform:write') ? html`<${Description} key=${found.description} permission=${found} reload=${reload} />`
      : html`<${Facts} items=${[['Allows to', found.description]]} />`)}
    ${found && html`<${Section} title="Roles that have it">
      <ul class="tags wrap">${found.roles.map((name) => html`<li key=${name}><a href=${href(paths.role(name))}><${Tag}>${name}<//></a></li>`)}</ul>
      ${found.internal && !found.built_in && html`<p class="quiet small">It is internal: no built-in role has it, except operator.</p>`}<//>`}
    ${deleting && html`<${Deletion} title="Delete this permission?" action="Delete permission" said=${`Deleted the permission ${key}.`}
      typed=${key} path=${`/permissions/${encodeURIComponent(key)}/`} to=${paths.permissions} onClose=${() => setDeleting(false)}>
      <p>Requests that need <code>${key}</code> are refused from then on. A permission that
        a role of yours or an active API key names cannot be deleted.</p><//>`}
  <//>`;
}

function Description({ permission, reload }) {
  const form = useForm({ description: permission.description }, async (values) => {
    await api.patch(`/permissions/${encodeURIComponent(permission.key)}/`, values);
    await reload();
    tell('Changed the description.');
  });
  return html`<${Form} form=${form} submit="Change description" disabled=${form.values.description === permission.description}>
    <${TextField} form=${form} name="description" label="Allows to" /><//>`;
}
