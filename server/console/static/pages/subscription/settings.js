// The settings of a subscription: a form, or facts for those who may not change them.
import { html, cx, useState } from '../../ui/html.js';
import { Facts } from '../../ui/page.js';
import { Form, useForm } from '../../ui/form.js';
import { tell } from '../../ui/told.js';
import { Time } from '../../ui/time.js';
import { api } from '../../api.js';
import { can } from '../../session.js';
import { Destination, Options, bodyOf, useEventTypes, valuesOf } from './fields.js';
import { Example } from './example.js';
import { sentences } from './filter.js';

export function Settings({ subscription, onSaved }) {
  const types = useEventTypes();
  const [saved, setSaved] = useState(() => valuesOf(subscription)); // what the server has, as the form shows it
  const form = useForm(saved, async (values) => {
    const now = valuesOf(await api.patch(`/webhooks/subscriptions/${subscription.id}/`, changes(saved, values)));
    setSaved(now);
    form.setValues(now);
    await onSaved();
    tell('Changes saved.');
  });
  if (!can('webhooks:write')) return html`<${ReadOnly} subscription=${subscription} />`;
  const isChanged = Object.keys(changes(saved, form.values)).length > 0;
  return html`<div class=${cx('stack previewed', isChanged && 'saved-below')}>
    <${Form} form=${form} submit="Save changes" disabled=${!isChanged}>
      <${Destination} form=${form} types=${types} />
      <div class="stack"><${Options} form=${form} /></div>
      ${!form.values.is_feed && html`<${Example} types=${types} chosen=${form.values.event_types} headers=${form.values.headers} />`}
    <//>
    <${Facts} items=${times(subscription)} />
  </div>`;
}

// changes has only the fields that differ, because some need more permissions than others.
function changes(before, after) {
  const old = bodyOf(before), now = bodyOf(after);
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name])));
}

const times = (s) => [
  ['Created', html`<${Time} value=${s.created_at} form="exact" />`],
  ['Changed', html`<${Time} value=${s.updated_at} form="exact" />`],
];

const ReadOnly = ({ subscription: s }) => html`<${Facts} items=${[
  ['Address', s.url ?? 'None: a program reads the events'],
  ['Event types', s.event_types.join(', ') || 'All'],
  ['Filter', sentences(s.filter) || 'None'],
  ['Audit events', s.audit_events ? 'Yes' : 'No'],
  ['In order', s.ordered ? 'Yes' : 'No'],
  ['Requests a second', s.rate_limit_per_second ?? 'No limit'],
  ['Request headers', Object.keys(s.headers).join(', ') || 'None'],
  ['External id', s.external_id ?? 'None'],
  ...times(s),
]} />`;
