// The organizations: the customers of the product, and the operator's own.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Badge, TwoLines } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Filters, TextFilter, NoneLike } from '../ui/filters.js';
import { Form, TextField, SelectField, useForm } from '../ui/form.js';
import { Empty } from '../ui/state.js';
import { Time, number } from '../ui/time.js';
import { useList, useLoad } from '../ui/hooks.js';
import { Curl } from '../ui/curl.js';
import { api } from '../api.js';
import { href, navigate, useQuery } from '../router.js';
import { can, actsEverywhere } from '../session.js';
import { paths } from '../paths.js';

const usual = 'subscriptions_in_trouble'; // and then the most waiting deliveries

// byName sorts organizations that are equal by name, if the list has no further page.
const byName = (list, sort) => (list.rows && !sort && !list.more.hasMore ? { ...list, rows: [...list.rows].sort((a, b) =>
  b.subscriptions_in_trouble - a.subscriptions_in_trouble || b.pending_deliveries - a.pending_deliveries || a.name.localeCompare(b.name)) } : list);

export function Organizations() {
  const [{ search, sort }] = useQuery();
  const list = byName(useList('/organizations/', { search, sort: sort ?? usual }), sort);
  const [open, setOpen] = useState(false);
  const create = can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New organization<//>`;
  const columns = [
    { head: 'Organization', main: true, cell: (o) => html`<${TwoLines} title=${o.name}>${o.closed_at && html`<code>${o.id}</code>`}<//>` },
    list.rows?.some((o) => o.external_id) && { head: 'External id', size: 'l', wide: true, roomy: true,
      cell: (o) => html`<span class="cut quiet" title=${o.external_id}><bdi>${o.external_id ?? '–'}</bdi></span>` },
    { head: 'Plan', size: 'm', wide: true, cell: (o) => (o.closed_at ? html`<${Badge} status="revoked" text="Closed" />` : html`<bdi>${o.plan}</bdi>`) },
    { head: 'In trouble', size: 's', number: true, sort: usual, down: true, isUsual: true,
      cell: (o) => html`<span class=${o.subscriptions_in_trouble ? 'strong danger' : 'quiet'}>${number(o.subscriptions_in_trouble)}</span>` },
    { head: 'Waiting', size: 's', number: true, sort: 'pending_deliveries', down: true,
      cell: (o) => html`<span class=${o.pending_deliveries ? 'strong' : 'quiet'}>${number(o.pending_deliveries)}</span>` },
    { head: 'Events, 30 days', size: 's', number: true, wide: true, cell: (o) => html`<span class="quiet">${number(o.events_last_30_days)}</span>` },
    { head: 'Last event', wide: true, sort: 'last_event_at', down: true, cell: (o) => html`<span class="row one-line spread">
      <${Time} value=${o.last_event_at} />
      ${actsEverywhere() && !o.closed_at && html`<a class="above on-row nowrap" href=${href('/', { org: o.id })}
        aria-label=${`Switch to ${o.name}`}>Switch to</a>`}</span>` },
  ].filter(Boolean);
  return html`<${Page} title="Organizations" actions=${create}>
    <${Filters}><${TextFilter} name="search" label="Search" placeholder="Name or external id" /><//>
    <${Table} label="Organizations" list=${list} columns=${columns} href=${(o) => href(paths.organization(o.id))}
      empty=${search ? html`<${NoneLike} title=${`No organization begins with “${search}”`}
        text="The search compares the beginning of the name and of the external id." />`
        : html`<${Empty} title="No organization yet"
          text="Each customer of your product is an organization, with its own keys, subscriptions and events.">${create}
        <${Curl} method="PUT" path="/organizations/acme-17/" body='{"name": "Acme", "plan": "growth"}' /><//>`} />
    ${open && html`<${NewOrganization} onClose=${() => setOpen(false)} />`}
  <//>`;
}

// useOptions loads the names of all plans or roles for a field.
export function useOptions(path) {
  const { data } = useLoad((signal) => api.get(path, { signal, query: { limit: 200 } }), [path]);
  return (data?.data ?? []).map((item) => [item.name, item.name]);
}

function NewOrganization({ onClose }) {
  const plans = useOptions('/plans/');
  const form = useForm({ name: '', plan: '', external_id: '' }, async ({ name, plan, external_id: external }) => {
    const created = await api.post('/organizations/', { name, plan, ...(external.trim() && { external_id: external.trim() }) });
    navigate(paths.organization(created.id));
  });
  return html`<${Dialog} title="New organization" onClose=${onClose}><${Form} form=${form} submit="Create organization">
    <${TextField} form=${form} name="name" label="Name" autofocus />
    <${SelectField} form=${form} name="plan" label="Plan" options=${[['', 'Choose a plan'], ...plans]} />
    <${TextField} form=${form} name="external_id" label="External id" optional
      hint="The id of this customer in your product. The API takes it wherever it takes the id." mono />
  <//><//>`;
}
