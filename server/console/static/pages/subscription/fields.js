// The fields of a subscription, for the form that creates one and the form that changes one.
import { html } from '../../ui/html.js';
import { AreaField, CheckField, FieldError, TextField } from '../../ui/form.js';
import { TokensField } from '../../ui/tokens.js';
import { Pairs } from '../../ui/pairs.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { can } from '../../session.js';
import { FilterField, filterOf, rowsOf } from './filter.js';

// useEventTypes returns the types of recent events, the most frequent first, and then the others of the catalogue.
export function useEventTypes() {
  const { data } = useLoad(async (signal) => (can('events:read') || can('webhooks:read') ? api.get('/event-types/', { signal }) : null), []);
  return data?.data ?? [];
}

export const empty = {
  is_feed: false, url: '', event_types: [], filter: [], audit_events: false, description: '',
  ordered: false, rate_limit_per_second: '', external_id: '', headers: [], secret: '',
};

// valuesOf makes the values of the form from a subscription. The values of headers are never shown, so they are empty.
export const valuesOf = (s) => ({
  is_feed: !s.url, url: s.url ?? '', event_types: s.event_types, filter: rowsOf(s.filter),
  audit_events: s.audit_events, description: s.description, ordered: s.ordered,
  rate_limit_per_second: String(s.rate_limit_per_second ?? ''), external_id: s.external_id ?? '',
  headers: Object.keys(s.headers).map((name) => ({ name, value: '', known: name })),
});

// bodyOf makes the body of a request from the values of the form. A known header without a new value keeps its value.
export function bodyOf({ is_feed: isFeed, headers, filter, rate_limit_per_second: pace, secret, ...rest }) {
  const named = headers.filter((h) => h.name.trim());
  return {
    ...rest, url: isFeed ? null : rest.url.trim(), filter: filterOf(filter), external_id: rest.external_id.trim() || null,
    rate_limit_per_second: pace === '' ? null : Number(pace),
    headers: Object.fromEntries(named.map((h) => [h.name.trim(), h.value || h.known !== h.name.trim() ? h.value : null])),
    ...(secret && { secret: secret.trim() }),
  };
}

export const AddressField = (props) => html`<${TextField} name="url" label="Address" type="url" inputmode="url"
  placeholder="https://example.com/webhooks" mono hint="Each event is sent to this address, as a signed POST." ...${props} />`;

// Destination are the fields that everybody needs.
export function Destination({ form, types, isNew }) {
  return html`
    ${!form.values.is_feed && html`<${AddressField} form=${form} autofocus=${isNew} />`}
    <${CheckField} form=${form} name="is_feed" label="A feed, without an address" hint="Nothing is sent. A program of yours reads the events." />
    <${TokensField} form=${form} name="event_types" label="Event types" placeholder="All event types" types=${types}
      hint=${form.values.event_types.length ? 'Enter ends a type. order.* means all types that begin with “order.”.'
        : 'Empty means all event types. Type one, such as order.paid, or order.* for all that begin with “order.”.'} />
    ${can('audit:read') && html`<${CheckField} form=${form} name="audit_events" label="Audit events, too"
      hint="Who changed what in this organization, such as api_key_created." />`}
    <${AreaField} form=${form} name="description" label="Description" optional rows=${2} />`;
}

// Options are the fields that few need.
export function Options({ form, isNew }) {
  return html`
    <${FilterField} form=${form} />
    <${CheckField} form=${form} name="ordered" label="In order" hint="One delivery at a time, in the order of publication. A retry delays all later ones." />
    <${TextField} form=${form} name="rate_limit_per_second" label="Requests a second, at most" optional type="number"
      min="1" max="10000" hint="1 to 10,000. More wait for their turn. Empty means no limit." />
    <${HeadersField} form=${form} />
    <${TextField} form=${form} name="external_id" label="External id" optional hint="Your own id for this subscription. The API takes it in place of the id." />
    ${isNew && html`<${TextField} form=${form} name="secret" label="Signing secret" optional mono
      hint="To move from another system: 24 to 256 characters. Empty: a new one is made." />`}`;
}

function HeadersField({ form }) {
  form.names.add('headers');
  const rows = form.values.headers, error = form.errorOf('headers');
  return html`<fieldset class="field">
    <legend>Request headers <span class="quiet">optional</span></legend>
    <${Pairs} rows=${rows} set=${(next) => form.set('headers', next)} of="of header " add="Add header" most=${10}
      error=${error} examples=${(row) => ['Authorization', row.known ? 'unchanged' : 'Bearer …']} />
    <${FieldError} error=${error} />
    <p class="hint">Every delivery has them, for example to authenticate at the receiver. The values are encrypted, and never shown again.</p>
  </fieldset>`;
}
