// The roles: named sets of permissions, which members of organizations have.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Button } from '../ui/button.js';
import { Tag, Tags, TwoLines } from '../ui/badge.js';
import { Dialog } from '../ui/dialog.js';
import { Form, TextField, CheckGroup, useForm } from '../ui/form.js';
import { Bar, Empty, Loading } from '../ui/state.js';
import { useList, useLoad } from '../ui/hooks.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { href, navigate } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { Deletion } from './ending.js';

const builtIn = { operator: 'Everything, in all organizations', owner: 'Everything in one organization',
  customer: 'Everything in one organization, except publishing events', member: 'Reads everything in one organization' };

export function Roles() {
  const list = useList('/roles/', {}, { id: (r) => r.name });
  const [open, setOpen] = useState(false);
  const columns = [
    { head: 'Role', main: true, size: 'l', cell: (r) => html`<${TwoLines} title=${r.name} />` },
    { head: 'Permissions', cell: (r) => (r.built_in ? html`<span class="quiet">${builtIn[r.name]}</span>` : html`<${Tags} values=${r.permissions} />`) },
    { head: 'Kind', size: 'm', wide: true, cell: (r) => html`<span class="quiet">${r.built_in ? 'Built in' : 'Yours'}</span>` },
  ];
  return html`<${Page} title="Roles"
    actions=${can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New role<//>`}>
    <${Table} label="Roles" list=${list} columns=${columns} rowKey=${(r) => r.name} href=${(r) => href(paths.role(r.name))}
      empty=${html`<${Empty} title="No role yet" text="A role says what its members may do." />`} />
    ${open && html`<${Dialog} title="New role" onClose=${() => setOpen(false)}><${RoleForm} /><//>`}
  <//>`;
}

export function Role({ name }) {
  const { data: role, error, reload } = useLoad((signal) => api.get(`/roles/${encodeURIComponent(name)}/`, { signal }), [name]);
  const [deleting, setDeleting] = useState(false);
  const writes = can('platform:write') && role && !role.built_in;
  return html`<${Page} title=${name} crumbs=${[['Roles', href(paths.roles)]]} aside=${role?.built_in && html`<span class="quiet">Built in</span>`}
    actions=${writes && html`<${Button} onClick=${() => setDeleting(true)}>Delete role…<//>`}>
    ${(error || !role) && html`<${Loading} error=${error} retry=${reload} />`}
    ${role?.built_in && html`<p class="quiet">${builtIn[name]}, with permissions that are created later. A built-in role stays as it is.</p>`}
    ${writes && html`<${RoleForm} key=${role.permissions.join()} role=${role} reload=${reload} />`}
    ${role && !writes && html`<ul class="stack tight">${role.permissions.map((key) => html`<li key=${key}>
      <a href=${href(paths.permission(key))}><${Tag}>${key}<//></a></li>`)}</ul>`}
    ${deleting && html`<${Deletion} title=${`Delete the role ${name}?`} action="Delete role" said=${`Deleted the role ${name}.`}
      path=${`/roles/${encodeURIComponent(name)}/`} to=${paths.roles} onClose=${() => setDeleting(false)}>
      <p>Only a role that no member has can be deleted. Otherwise nothing happens, and you see why.</p><//>`}
  <//>`;
}

function RoleForm({ role, reload }) {
  const all = useLoad((signal) => api.get('/permissions/', { signal, query: { limit: 200 } }), []);
  const form = useForm({ name: '', permissions: role?.permissions ?? [] }, async ({ name, permissions }) => {
    if (role) {
      await api.patch(`/roles/${encodeURIComponent(role.name)}/`, { permissions });
      await reload();
      tell(`Changed the role ${role.name}.`);
      return;
    }
    const created = await api.post('/roles/', { name: name.trim(), permissions });
    navigate(paths.role(created.name));
  });
  if (!all.data) return html`<${Loading} error=${all.error} retry=${all.reload} />`;
  const { permissions } = form.values;
  const listed = all.data.data.map((p) => [p.key, p.key, p.description]);
  const others = permissions.filter((key) => !listed.some(([k]) => k === key)).map((key) => [key, key]);
  const options = [...listed, ...others].sort(([a], [b]) => (a < b ? -1 : 1));
  const platform = permissions.filter((key) => key.startsWith('platform:'));
  const before = new Set(role?.permissions), after = new Set(permissions);
  const added = permissions.filter((key) => !before.has(key)), removed = [...before].filter((key) => !after.has(key));
  const changed = added.length + removed.length > 0;
  return html`<${Form} form=${form} disabled=${role && !changed} submit=${role ? 'Change role' : 'Create role'}>
    ${!role && html`<${TextField} form=${form} name="name" label="Name"
      hint="Lower-case letters, digits, - and _, such as support. It cannot be changed." mono autofocus />`}
    <${CheckGroup} form=${form} name="permissions" label="Permissions" options=${options} hint="You can give only what you hold." />
    ${platform.length > 0 && html`<${Bar} tone="warning"><p>Permissions of the platform reach all organizations: ${platform.join(', ')}.</p><//>`}
    ${role && changed && html`<div class="stack tight" role="status">
      ${added.length > 0 && html`<p>Adds ${added.join(', ')}.</p>`}
      ${removed.length > 0 && html`<p>Removes ${removed.join(', ')}.</p>`}
      <p>This is for all members with the role, from their next request on.</p></div>`}
  <//>`;
}
