// The catalogue of event types: what the operator says about each, for all organizations.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { AreaField, Form, TextField, useForm } from '../ui/form.js';
import { ObjectField, checkObject } from '../ui/object_field.js';
import { Empty, Loading } from '../ui/state.js';
import { tell } from '../ui/told.js';
import { useLoad } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate } from '../router.js';
import { can } from '../session.js';
import { paths } from '../paths.js';
import { Deletion } from './ending.js';

const pathOf = (type) => `/event-types/${encodeURIComponent(type)}/`;
const cut = (text) => html`<span class="cut" title=${text}><bdi>${text}</bdi></span>`;

export function EventTypes() {
  const { data, error, reload } = useLoad((signal) => api.get('/event-types/', { signal }), []);
  const [open, setOpen] = useState(false);
  const rows = data?.data.filter((t) => t.description).sort((a, b) => (a.group ?? '').localeCompare(b.group ?? '') || a.type.localeCompare(b.type));
  const columns = [
    { head: 'Event type', main: true, size: 'l', cell: (t) => html`<code class="strong"><bdi>${t.type}</bdi></code>` },
    { head: 'Group', size: 'm', cell: (t) => t.group && cut(t.group) },
    { head: 'Description', wide: true, cell: (t) => cut(t.description) },
    { head: 'Example', size: 's', wide: true, cell: (t) => html`<span class="quiet">${t.example ? 'Yes' : 'No'}</span>` },
  ];
  return html`<${Page} title="Event types"
    actions=${can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New event type<//>`}>
    <p class="quiet">All organizations see these types where they choose event types. Events of other types are delivered, too: the publisher gets a notice.</p>
    <${Table} label="Event types" list=${{ rows, error, reload }} columns=${columns} rowKey=${(t) => t.type} href=${(t) => href(paths.eventType(t.type))}
      empty=${html`<${Empty} title="No event type yet"
        text="Describe the events of your product, with an example of each. A customer can then test a receiver with it." />`} />
    ${open && html`<${Dialog} title="New event type" wide onClose=${() => setOpen(false)}>
      <${TypeForm} onSaved=${(t) => navigate(paths.eventType(t.type))} /><//>`}
  <//>`;
}

export function EventType({ type }) {
  const { data: found, error, reload } = useLoad((signal) => api.get(pathOf(type), { signal }), [type]);
  const [deleting, setDeleting] = useState(false);
  const writes = can('platform:write');
  const onSaved = async () => {
    await reload();
    tell('Changes saved.');
  };
  return html`<${Page} title=${type} crumbs=${[['Event types', href(paths.eventTypes)]]}
    actions=${found?.description && writes && html`<${Button} onClick=${() => setDeleting(true)}>Remove…<//>`}>
    ${(error || !found) && html`<${Loading} error=${error} retry=${reload} />`}
    ${found && html`<${TypeForm} key=${JSON.stringify(found)} found=${found} readOnly=${!writes} onSaved=${onSaved} />`}
    ${deleting && html`<${Deletion} title="Remove this event type?" action="Remove event type"
      said=${`Removed ${type} from the catalogue.`} path=${pathOf(type)} to=${paths.eventTypes} onClose=${() => setDeleting(false)}>
      <p><code>${type}</code> leaves the catalogue. Subscriptions to it stay, and its events are delivered as before.</p><//>`}
  <//>`;
}

const text = (object) => (object ? JSON.stringify(object, null, 2) : '');

// TypeForm adds a type, or changes the one that was found. It sends what has changed, as it was typed.
function TypeForm({ found, readOnly, onSaved }) {
  const before = { type: found?.type ?? '', description: found?.description ?? '',
    group: found?.group ?? '', example: text(found?.example), schema: text(found?.schema) };
  const form = useForm(before, async (values) => {
    const members = [];
    const add = (name, json) => { if (values[name] !== before[name] || !found) members.push(`"${name}":${values[name].trim() ? json : 'null'}`); };
    for (const name of ['example', 'schema']) {
      if (values[name].trim()) checkObject(name, values[name]);
      add(name, values[name]);
    }
    add('group', JSON.stringify(values.group));
    members.push(`"description":${JSON.stringify(values.description)}`);
    await onSaved(await api.put(pathOf(values.type.trim() || '-'), `{${members.join()}}`));
  });
  const same = Object.keys(before).every((name) => form.values[name] === before[name]);
  return html`<${Form} form=${form} submit=${found ? 'Save changes' : 'Add event type'} disabled=${readOnly || same}>
    ${!found && html`<${TextField} form=${form} name="type" label="Type" placeholder="order.paid"
      hint="Lower-case words with dots between them. It cannot be changed." mono autofocus maxlength="128" />`}
    <${AreaField} form=${form} name="description" label="Description" rows=${2} hint="What has happened when such an event is published." />
    <${TextField} form=${form} name="group" label="Group" optional placeholder="Orders" hint="Types of one group stand together." />
    <${ObjectField} form=${form} name="example" label="Example" optional rows=${8} hint="The data of an event, as a JSON object. A test sends it." />
    <${ObjectField} form=${form} name="schema" label="Schema" optional rows=${4} hint="For readers, such as a JSON Schema. Keyhook checks nothing with it." />
  <//>`;
}
