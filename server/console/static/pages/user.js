// One user: memberships, access tokens, and the end.
import { html, useState } from '../ui/html.js';
import { TwoLines } from '../ui/badge.js';
import { Page, Facts, Section } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Id } from '../ui/copy.js';
import { Button } from '../ui/button.js';
import { Menu } from '../ui/menu.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Form, TextField, useForm } from '../ui/form.js';
import { Empty, Loading } from '../ui/state.js';
import { Time, count } from '../ui/time.js';
import { useLoad, useList } from '../ui/hooks.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { href } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { End, Ended, Deletion } from './ending.js';
import { UserStatus } from './users.js';
import { AddToOrganization } from './membership.js';
import { Tokens } from './tokens.js';

const dialogs = { add: AddToOrganization, edit: Edit, active: Active, erase: Erase, remove: Remove };

export function User({ id }) {
  const { data: user, error, reload } = useLoad((signal) => api.get(`/users/${encodeURIComponent(id)}/`, { signal }), [id]);
  const memberships = useList(`/users/${encodeURIComponent(id)}/memberships/`, {}, { id: (m) => m.organization.id });
  const [open, setOpen] = useState(null); // the name of the dialog
  const crumbs = [['Users', href(paths.users)]];
  if (!user) return html`<${Page} title="User" crumbs=${crumbs}><${Loading} error=${error} retry=${reload} /><//>`;
  const name = user.name || user.email || 'Without a name';
  const DialogNow = dialogs[open];
  const isPerson = user.kind === 'person' && !user.erased_at;
  const add = can('platform:write') && isPerson && html`<${Button} icon="plus" onClick=${() => setOpen('add')}>Add to organization…<//>`;
  const columns = [
    { head: 'Organization', main: true, cell: (m) => html`<${TwoLines} title=${m.organization.name} />` },
    { head: 'Role', size: 'm', cell: (m) => html`<bdi>${m.role}</bdi>` },
    { head: 'Since', size: 'm', wide: true, cell: (m) => html`<${Time} value=${m.created_at} />` },
  ];
  return html`<${Page} title=${name} crumbs=${crumbs} aside=${html`<${UserStatus} user=${user} />`}
    actions=${can('platform:write') && isPerson && html`<${Menu} items=${[
      { text: 'Change user…', onClick: () => setOpen('edit') },
      { text: user.is_active ? 'Deactivate user…' : 'Activate user…', onClick: () => setOpen('active') },
      { text: 'Erase user…', danger: true, onClick: () => setOpen('erase') },
      { text: 'Delete if unused…', danger: true, onClick: () => setOpen('remove') },
    ]} />`}>
    <${Facts} across items=${[['Id', html`<${Id} value=${user.id} />`], ['E-mail address', user.email],
      ['External id', user.external_id && html`<${Id} value=${user.external_id} />`],
      ['Kind', user.kind === 'service' ? 'Service account: no person signs in as it' : null],
      ['Erased', user.erased_at && html`<${Time} value=${user.erased_at} />`]]} />
    ${user.erased_at && html`<${Erased} user=${user} />`}
    <${Section} title="Memberships" actions=${memberships.rows?.length > 0 && add}>
      <${Table} label="Memberships" list=${memberships} columns=${columns} rowKey=${(m) => m.organization.id}
        href=${(m) => href(paths.organization(m.organization.id))} skeleton=${2}
        empty=${html`<${Empty} title="In no organization"
          text=${isPerson ? 'A user can do nothing before an organization has it as a member.' : ''}>${add}<//>`} /><//>
    ${user.kind === 'person' && html`<${Tokens} user=${user} memberships=${memberships.rows} />`}
    ${open && html`<${DialogNow} user=${user} name=${name} reload=${reload} done=${memberships.reload} onClose=${() => setOpen(null)} />`}
  <//>`;
}

function Edit({ user, reload, onClose }) {
  const start = { email: user.email ?? '', name: user.name, external_id: user.external_id ?? '' };
  const form = useForm(start, async (values) => {
    await api.patch(`/users/${user.id}/`, Object.fromEntries(Object.entries(values).filter(([field, value]) => value !== start[field])));
    await reload();
    onClose();
    tell('Saved the user.');
  });
  return html`<${Dialog} title="Change user" onClose=${onClose}><${Form} form=${form} submit="Save user">
    <${TextField} form=${form} name="email" label="E-mail address" type="email" />
    <${TextField} form=${form} name="name" label="Name" />
    <${TextField} form=${form} name="external_id" label="External id" optional mono
      hint="Whoever signs in with this id or this e-mail address signs in as this user." />
  <//><//>`;
}

function Active({ user, name, reload, onClose }) {
  const set = async () => {
    await api.patch(`/users/${user.id}/`, { is_active: !user.is_active });
    await reload();
    return `${title}d ${name}.`;
  };
  const title = user.is_active ? 'Deactivate' : 'Activate';
  return html`<${Confirm} title=${html`${title} <bdi>${name}</bdi>?`} action=${`${title} user`} onConfirm=${set} onClose=${onClose}>
    <p>${user.is_active ? 'All tokens and API keys of this user are refused from the next request on. Activate the user to allow them again.'
      : 'The tokens and API keys of this user that are not revoked or expired are valid again.'}</p><//>`;
}

// typedFor is what one types to end a user: the e-mail address if it is easy to type, else the id.
const typedFor = ({ email, id }) => (email && email.length <= 40 ? email : id);

const erasing = ({ id }) => `/users/${id}/erase/`;

function Erase({ user, name, ...rest }) {
  return html`<${End} ...${rest} path=${erasing(user)} title=${html`Erase <bdi>${name}</bdi>?`}
    action="Erase user" said="Erased the user." typed=${typedFor(user)}
    items=${(ends) => [
      ['Revoked', `${count(ends.access_tokens, 'access token')}, ${count(ends.api_keys, 'API key')}`],
      ['Removed', `${count(ends.memberships, 'membership')}; the name, the e-mail address and the external id, also in audit logs and events`],
      ['Kept', 'The id in the audit log, and the keys of service accounts'],
    ]}>For a person who leaves. This cannot be undone.<//>`;
}

const Erased = ({ user }) => html`<${Ended} path=${erasing(user)} title="This user is erased"
  removing="Copies of the personal data are being removed." removed="No copy of the personal data is left." />`;

function Remove({ user, name, onClose }) {
  return html`<${Deletion} title=${html`Delete <bdi>${name}</bdi>?`} action="Delete user" said=${`Deleted the user ${name}.`}
    typed=${typedFor(user)} path=${`/users/${user.id}/`} to=${paths.users} onClose=${onClose}>
    <p>Only a user without memberships, tokens and keys can be deleted; revoked ones count too. Otherwise nothing happens.</p>
    <p>To stop a user, deactivate the user. For a person who leaves, erase the user.</p><//>`;
}
