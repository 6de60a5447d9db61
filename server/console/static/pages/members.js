// The members of an organization: add, give another role, remove.
import { html, useState } from '../ui/html.js';
import { TwoLines } from '../ui/badge.js';
import { Section } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Button } from '../ui/button.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Field, Form, SelectField, useForm } from '../ui/form.js';
import { Empty } from '../ui/state.js';
import { useList } from '../ui/hooks.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { href } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { Combobox } from '../shell/combobox.js';
import { useOptions } from './organizations.js';

export function Members({ organization }) {
  const list = useList(`/organizations/${organization.id}/members/`, {}, { id: (m) => m.user_id });
  const [open, setOpen] = useState(null); // a member, or 'new'
  const writes = can('platform:write');
  const add = writes && html`<${Button} icon="plus" onClick=${() => setOpen('new')}>Add member…<//>`;
  const columns = [
    { head: 'Member', main: true, cell: (m) => html`<${Person} user=${m} />` },
    { head: 'Role', size: 'l', cell: (m) => html`<span class="row spread"><bdi>${m.role}</bdi>
      ${writes && m.kind === 'person' && html`<button type="button" class="plain accent" onClick=${() => setOpen(m)}>Change role…</button>`}</span>` },
  ];
  const done = async (said) => {
    await list.reload();
    setOpen(null);
    tell(said);
  };
  return html`<${Section} title="Members" actions=${add}>
    <${Table} label="Members" list=${list} columns=${columns} rowKey=${(m) => m.user_id} href=${(m) => href(paths.user(m.user_id))} skeleton=${3}
      empty=${html`<${Empty} title="No member yet" text="Members sign in to the organization with access tokens. A portal link needs no member." />`} />
    ${open === 'new' && html`<${Add} organization=${organization} done=${done} onClose=${() => setOpen(null)} />`}
    ${open && open !== 'new' && html`<${Change} organization=${organization} member=${open} done=${done} onClose=${() => setOpen(null)} />`}
  <//>`;
}

const Person = ({ user }) => html`<${TwoLines} title=${user.name || 'Without a name'}>
  <bdi>${user.kind === 'service' ? user.organization_name ?? 'Service account: owns the keys of the back end' : user.email ?? '–'}</bdi><//>`;

const put = (organization, user, role) => api.put(`/organizations/${organization.id}/members/${user}/`, { role });

// Add finds a user, or creates one for an e-mail address that no user has.
function Add({ organization, done, onClose }) {
  const roles = useOptions('/roles/');
  const form = useForm({ user: null, role: 'member' }, async ({ user, role }) => {
    let id = user.id;
    if (!id) {
      id = await api.post('/users/', { email: user.email }).then((created) => created.id, (refused) => {
        if (!refused.conflictingId) throw refused;
        return refused.conflictingId; // another tab has created the user
      });
      form.set('user', { ...user, id });
    }
    await put(organization, id, role);
    await done(`Added ${user.name || user.email}.`);
  });
  const find = async (search, signal) => {
    const { data } = await api.get('/users/', { query: { search, limit: 8 }, signal });
    const people = data.filter((u) => u.kind === 'person' && !u.erased_at);
    const isNew = /^\S+@\S+\.\S+$/.test(search) && !people.some((u) => u.email?.toLowerCase() === search.toLowerCase());
    return isNew ? [...people, { key: 'new', name: 'New user', kind: 'person', email: search }] : people;
  };
  const { user } = form.values;
  return html`<${Dialog} title="Add member" onClose=${onClose}><${Form} form=${form} submit="Add member" disabled=${!user}>
    ${user ? html`<div class="row spread"><${Person} user=${user} /><${Button} onClick=${() => form.set('user', null)}>Other user<//></div>`
      : html`<${Field} form=${form} name="email" label="User" hint="A new e-mail address creates a user.">${({ id }) => html`<${Combobox} id=${id} label="User"
        placeholder="Name, e-mail address or external id" autofocus find=${find} choose=${(found) => form.set('user', found)}
        none=${(text) => `No user begins with “${text}”. Type a whole e-mail address to create one.`} show=${(u) => html`<${Person} user=${u} />`} />`}<//>`}
    <${SelectField} form=${form} name="role" label="Role" options=${roles} />
  <//><//>`;
}

function Change({ organization, member, done, onClose }) {
  const roles = useOptions('/roles/');
  const [removing, setRemoving] = useState(false);
  const form = useForm({ role: member.role }, async ({ role }) => {
    await put(organization, member.user_id, role);
    await done(`${member.name} has the role ${role}.`);
  });
  if (removing) {
    const remove = async () => {
      await api.delete(`/organizations/${organization.id}/members/${member.user_id}/`);
      await done(`Removed ${member.name}.`);
    };
    return html`<${Confirm} key="remove" title=${html`Remove <bdi>${member.name}</bdi>?`} action="Remove member" danger onConfirm=${remove} onClose=${onClose}>
      <p>The tokens and the API keys of this user for the organization are refused from now on. The user stays.</p><//>`;
  }
  return html`<${Dialog} key="role" title=${html`Role of <bdi>${member.name}</bdi>`} onClose=${onClose}>
    <${Form} form=${form} submit="Change role" disabled=${form.values.role === member.role}>
      <${SelectField} form=${form} name="role" label="Role" options=${roles} hint="The new role counts from the next request on." />
      <div class="row"><button type="button" class="plain link accent" onClick=${() => setRemoving(true)}>Remove from the organization…</button></div><//>
  <//>`;
}
