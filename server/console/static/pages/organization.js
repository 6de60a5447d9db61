// One organization: its plan, what it uses, its members, its portal link, and its end.
import { html, useState } from '../ui/html.js';
import { Page, Facts, Section } from '../ui/page.js';
import { Badge } from '../ui/badge.js';
import { Id } from '../ui/copy.js';
import { Button, LinkButton } from '../ui/button.js';
import { Menu } from '../ui/menu.js';
import { Dialog } from '../ui/dialog.js';
import { Form, TextField, SelectField, useForm } from '../ui/form.js';
import { ErrorBar, Loading } from '../ui/state.js';
import { Time, number, count, bytes } from '../ui/time.js';
import { Usage } from '../ui/usage.js';
import { useLoad, usePoll } from '../ui/hooks.js';
import { tell } from '../ui/told.js';
import { api } from '../api.js';
import { href } from '../router.js';
import { can, actsEverywhere, actingIn } from '../session.js';
import { paths } from '../paths.js';
import { End, Ended, Deletion } from './ending.js';
import { Changes, limits } from './plans.js';
import { Members } from './members.js';
import { PortalLink } from './portal_link.js';

const dialogs = { edit: Edit, plan: ChangePlan, portal: PortalLink, close: Close, remove: Remove };

export function Organization({ id }) {
  const { data: organization, error, reload } = useLoad((signal) => api.get(`/organizations/${encodeURIComponent(id)}/`, { signal }), [id]);
  const backlog = useBacklog(organization);
  const [open, setOpen] = useState(null); // the name of the dialog
  const DialogNow = dialogs[open];
  const crumbs = [['Organizations', href(paths.organizations)]];
  if (!organization) return html`<${Page} title="Organization" crumbs=${crumbs}><${Loading} error=${error} retry=${reload} /><//>`;
  const name = organization.name;
  const writes = can('platform:write'), isOpen = !organization.closed_at;
  return html`<${Page} title=${name} crumbs=${crumbs}
    aside=${backlog && html`<${Trouble} id=${organization.id} statuses=${backlog.statuses} />`} actions=${html`
      ${can('platform:act_as') && isOpen && html`<${Button} icon="external" onClick=${() => setOpen('portal')}>Create portal link…<//>`}
      ${actsEverywhere() && isOpen
        && html`<${LinkButton} kind="primary"
        href=${href('/', { org: organization.id })}>Switch to ${name.length > 24 ? 'this organization' : html`<bdi>${name}</bdi>`}<//>`}
      ${writes && isOpen && html`<${Menu} items=${[
        { text: 'Change name or external id…', onClick: () => setOpen('edit') },
        { text: 'Close organization…', danger: true, onClick: () => setOpen('close') },
        { text: 'Delete if empty…', danger: true, onClick: () => setOpen('remove') },
      ]} />`}`}>
    <${Facts} across items=${[['Id', html`<${Id} value=${organization.id} />`],
      ['External id', organization.external_id && html`<${Id} value=${organization.external_id} />`],
      ['Waiting deliveries', isOpen && reads(organization.id, 'webhooks:read') ? html`<${Waiting} backlog=${backlog} />` : null],
      ['Closed', organization.closed_at && html`<${Time} value=${organization.closed_at} />`]]} />
    ${isOpen ? html`<div class="columns two"><${Use} organization=${organization} backlog=${backlog} change=${writes && (() => setOpen('plan'))} />
      <${Members} organization=${organization} /></div>
      ${reads(organization.id, 'api_keys:read')
        && html`<${Usage} path="/usage/organizations/" columns=${uses} bar=${(u) => u.events} none="Nothing in the last 30 days."
        organization=${actingIn(organization.id)} />`}` : html`<${Closed} organization=${organization} />`}
    ${open && html`<${DialogNow} organization=${organization} name=${name} backlog=${backlog} reload=${reload} onClose=${() => setOpen(null)} />`}
  <//>`;
}

const uses = [['Events', (u) => number(u.events)], ['Delivered', (u) => number(u.deliveries_succeeded)], ['Given up', (u) => number(u.deliveries_failed)],
  ['Stored', (u) => bytes(u.stored_bytes)]];

// reads reports whether somebody may read what an organization has. Such a request acts in the organization.
const reads = (id, permission) => can(permission) && (actingIn(id) === '' || can('platform:act_as'));

// useBacklog loads the state of the subscriptions of an organization that is open.
const useBacklog = ({ id, closed_at: closed } = {}) => usePoll(async (signal) =>
  id && !closed && reads(id, 'webhooks:read') && api.get('/webhooks/backlog/', { signal, organization: actingIn(id) }), [id, closed], 10_000).data;

// total is the number of subscriptions. The paused ones are among the disabled ones.
const total = ({ statuses: { healthy, failing, disabled } }) => healthy + failing + disabled;

// Trouble says how many subscriptions need help, and links to them.
const Trouble = ({ id, statuses: { failing, disabled, paused } }) => Object.entries({ failing, disabled: disabled - paused }).map(([status, n]) => n > 0
  && html`<a key=${status} href=${href(paths.subscriptions, { status, org: id })}><${Badge} status=${status} text=${`${number(n)} ${status}`} /></a>`);

const Waiting = ({ backlog }) => (backlog ? html`${number(backlog.pending)}${backlog.oldest_due_at
  && html`<span class="quiet">, the oldest due <${Time} value=${backlog.oldest_due_at} /></span>`}` : '–');

function useUse({ id, plan }) {
  return {
    plan: useLoad((signal) => api.get(`/plans/${encodeURIComponent(plan)}/`, { signal }), [plan]).data,
    keys: useLoad(async (signal) => {
      if (!reads(id, 'api_keys:read')) return null;
      const { api_keys: n } = await api.get('/usage/', { signal, organization: actingIn(id) });
      return { n, text: number(n) };
    }, [id]).data,
  };
}

// Use shows what the plan allows, and how much of it the organization uses. Each line has its place from the start.
function Use({ organization: { id, plan: name }, backlog, change }) {
  const { plan, keys } = useUse({ id, plan: name });
  const link = (path, text, query) => html`<a href=${href(path, { ...query, org: id })}>${text}</a>`;
  const used = {
    max_subscriptions: backlog && html`${link(paths.subscriptions, number(total(backlog)))} of `,
    max_api_keys: keys && html`${link(paths.keys, keys.text)} of `,
  };
  return html`<${Section} title=${html`Plan <a href=${href(paths.plan(name))}><bdi>${name}</bdi></a>`}
    actions=${change && html`<${Button} onClick=${change}>Change plan…<//>`}>
    <${Facts} items=${limits.map(([field, label, show]) => [label, html`${used[field]}${plan ? show(plan[field]) : '–'}`])} /><//>`;
}

function ChangePlan({ organization, name, backlog, reload, onClose }) {
  const { plan, keys } = useUse(organization);
  const plans = useLoad((signal) => api.get('/plans/', { signal, query: { limit: 200 } }), []);
  const form = useForm({ plan: organization.plan }, async (values) => {
    await api.patch(`/organizations/${organization.id}/`, values);
    await reload();
    onClose();
    tell(`Changed the plan of ${name} to ${values.plan}.`);
  });
  const to = plans.data?.data.find((p) => p.name === form.values.plan);
  return html`<${Dialog} title=${html`Change the plan of <bdi>${name}</bdi>`} onClose=${onClose}>
    <${ErrorBar} error=${plans.error} retry=${plans.reload} />
    <${Form} form=${form} submit="Change plan" disabled=${!to || to.name === organization.plan}>
      <${SelectField} form=${form} name="plan" label="Plan" options=${(plans.data?.data ?? [plan]).filter(Boolean).map((p) => [p.name, p.name])} />
      ${plan && to && to.name !== plan.name && html`<div class="stack tight" role="status">
        <${Changes} from=${plan} to=${to} subscriptions=${backlog && total(backlog)} keys=${keys?.n} /></div>`}
    <//><//>`;
}

function Edit({ organization, reload, onClose }) {
  const form = useForm({ name: organization.name, external_id: organization.external_id ?? '' }, async (values) => {
    await api.patch(`/organizations/${organization.id}/`, values);
    await reload();
    onClose();
    tell('Saved the organization.');
  });
  return html`<${Dialog} title="Change name or external id" onClose=${onClose}><${Form} form=${form} submit="Save organization">
    <${TextField} form=${form} name="name" label="Name" />
    <${TextField} form=${form} name="external_id" label="External id" optional mono
      hint="A back end that uses the old external id does not find the organization any more." />
  <//><//>`;
}

// typedFor is what one types to end an organization: its name, or its id if the name is hard to type.
const typedFor = ({ name, id }) => (/^[\p{L}\p{N} .,&'-]{1,40}$/u.test(name) ? name : id);

const closing = ({ id }) => `/organizations/${id}/close/`;

function Close({ organization, name, ...rest }) {
  return html`<${End} ...${rest} path=${closing(organization)} title=${html`Close <bdi>${name}</bdi>?`}
    action="Close organization" said=${`Closed ${name}.`} typed=${typedFor(organization)}
  items=${(ends) => [
    ['Revoked', `${count(ends.api_keys, 'API key')}, ${count(ends.access_tokens, 'access token')}`],
    ['Removed', `${count(ends.subscriptions, 'subscription')}, ${count(ends.members, 'membership')}, and all events`],
    ['Never sent', ends.pending_deliveries > 0 ? count(ends.pending_deliveries, 'waiting delivery', 'waiting deliveries') : null],
    ['Made anonymous', 'Its name, its external id, and the details of its audit log'],
    ['Kept', 'The users; erase them one by one'],
  ]}>For a customer that leaves. From now on its credentials are refused, and nothing is sent for it. This cannot be undone.<//>`;
}

const Closed = ({ organization }) => html`<${Ended} path=${closing(organization)} title="This organization is closed"
  removing="Its credentials are refused, and its data is being removed." removed="All of its data is removed. Its id stays, for the audit log." />`;

function Remove({ organization, name, onClose }) {
  return html`<${Deletion} title=${html`Delete <bdi>${name}</bdi>?`} action="Delete organization"
    said=${`Deleted the organization ${name}.`} typed=${typedFor(organization)}
    path=${`/organizations/${organization.id}/`} to=${paths.organizations} onClose=${onClose}>
    <p>Only an organization without members, credentials, subscriptions and events can be deleted. Its audit log moves to your organization.</p>
    <p>Otherwise nothing happens. For a customer that leaves, close the organization instead.</p><//>`;
}
