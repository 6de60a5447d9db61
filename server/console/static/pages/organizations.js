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

export function Organizations() {
  const [{ search, sort }] = useQuery();
  const list = useList('/organizations/', { search, sort });
  const [open, setOpen] = useState(false);
  const create = can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New organization<//>`;
  const columns = [
    { head: 'Organization', main: true, cell: (o) => html`<${TwoLines} title=${o.name}>${o.closed_at && html`<code>${o.id}</code>`}<//>` },
    { head: 'External id', size: 'l', wide: true,
      cell: (o) => html`<span class="two-lines quiet"><span class="cut"><bdi>${o.external_id ?? '–'}</bdi></span></span>` },
    { head: 'Plan', size: 'm', cell: (o) => (o.closed_at ? html`<${Badge} status="revoked" text="Closed" />` : html`<bdi>${o.plan}</bdi>`) },
    { head: 'In trouble', size: 's', number: true, sort: 'subscriptions_in_trouble', down: true,
      cell: (o) => html`<span class=${o.subscriptions_in_trouble ? 'strong danger' : 'quiet'}>${number(o.subscriptions_in_trouble)}</span>` },
    { head: 'Waiting', size: 's', number: true, wide: true, sort: 'pending_deliveries', down: true,
      cell: (o) => html`<span class=${o.pending_deliveries ? 'strong' : 'quiet'}>${number(o.pending_deliveries)}</span>` },
    { head: 'Last event', size: 'm', wide: true, sort: 'last_event_at', down: true, cell: (o) => html`<${Time} value=${o.last_event_at} />` },
    actsEverywhere() && { head: 'Switch', label: true, size: 's', wide: true,
      cell: (o) => !o.closed_at && html`<a class="above" href=${href('/', { org: o.id })}
      aria-label=${`Switch to ${o.name}`}>Switch to</a>` },
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
