// The dialog that adds a user to an organization, from the page of the user.
import { html } from '../ui/html.js';
import { TwoLines } from '../ui/badge.js';
import { Dialog } from '../ui/dialog.js';
import { Button } from '../ui/button.js';
import { Field, Form, SelectField, useForm } from '../ui/form.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { Combobox } from '../shell/combobox.js';
import { useOptions } from './organizations.js';

export function AddToOrganization({ user, name, done, onClose }) {
  const roles = useOptions('/roles/');
  const form = useForm({ organization: null, role: 'member' }, async ({ organization, role }) => {
    await api.put(`/organizations/${organization.id}/members/${user.id}/`, { role });
    await done();
    onClose();
    tell(`Added ${name} to ${organization.name}.`);
  });
  const find = async (search, signal) => {
    const { data } = await api.get('/organizations/', { query: { search, limit: 8 }, signal });
    return data.filter((o) => !o.closed_at);
  };
  const { organization } = form.values;
  return html`<${Dialog} title=${html`Add <bdi>${name}</bdi> to an organization`} onClose=${onClose}>
    <${Form} form=${form} submit="Add member" disabled=${!organization}>
    ${organization ? html`<div class="row spread"><${Choice} organization=${organization} />
      <${Button} onClick=${() => form.set('organization', null)}>Other organization<//></div>`
      : html`<${Field} form=${form} name="organization" label="Organization">${({ id }) => html`<${Combobox} id=${id} label="Organization" early
        placeholder="Name or external id" autofocus find=${find} choose=${(found) => form.set('organization', found)}
        none=${(text) => `No organization begins with “${text}”.`} show=${(o) => html`<${Choice} organization=${o} />`} />`}<//>`}
    <${SelectField} form=${form} name="role" label="Role" options=${roles} hint="A user who is a member already gets this role." />
  <//><//>`;
}

const Choice = ({ organization }) => html`<${TwoLines} title=${organization.name}><bdi>${organization.external_id ?? organization.id}</bdi><//>`;
