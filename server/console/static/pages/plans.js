// The plans: what the organizations on them may use.
import { html, useState } from '../ui/html.js';
import { TwoLines } from '../ui/badge.js';
import { Page, Facts } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Button } from '../ui/button.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Form, TextField, CheckField, useForm } from '../ui/form.js';
import { Empty, ErrorBar, Loading } from '../ui/state.js';
import { count, number, bytes } from '../ui/time.js';
import { useList, useLoad } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate } from '../router.js';
import { actsEverywhere, can } from '../session.js';
import { paths } from '../paths.js';
import { Deletion } from './ending.js';

const yes = (on) => (on ? 'Yes' : 'No');
const most = (fallback) => (n) => (n === null ? fallback : number(n));

// limits are the fields of a plan: name, label, how to show the value.
export const limits = [
  ['api_keys', 'Uses API keys', yes],
  ['webhooks', 'Uses webhooks', yes],
  ['api_rate_limit_per_minute', 'Requests a minute', most('No limit')],
  ['max_api_keys', 'Active API keys', most('10,000')],
  ['max_subscriptions', 'Subscriptions', most('5,000')],
  ['max_stored_bytes_per_day', 'Stored data a day', (n) => (n === null ? 'No limit' : bytes(n))],
];

export function Plans() {
  const list = useList('/plans/', {}, { id: (p) => p.name });
  const [open, setOpen] = useState(false);
  const columns = [
    { head: 'Plan', main: true, cell: (p) => html`<${TwoLines} title=${p.name} />` },
    ...limits.map(([field, head, show]) => ({ head, size: field.endsWith('minute') ? 'l' : 'm', number: field !== 'api_keys'
      && field !== 'webhooks', wide: !field.endsWith('minute'),
      cell: (p) => html`<span class=${p[field] === false ? 'quiet' : ''}>${show(p[field])}</span>` })),
  ];
  return html`<${Page} title="Plans"
    actions=${can('platform:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => setOpen(true)}>New plan<//>`}>
    <${Table} label="Plans" list=${list} columns=${columns} rowKey=${(p) => p.name} href=${(p) => href(paths.plan(p.name))}
      empty=${html`<${Empty} title="No plan yet" text="A plan says what the organizations on it may use, and how much." />`} />
    ${open && html`<${NewPlan} onClose=${() => setOpen(false)} />`}
  <//>`;
}

function NewPlan({ onClose }) {
  const form = useForm({ name: '', ...fieldsOf({ api_keys: true, webhooks: true }) }, async (values) => {
    const plan = await api.post('/plans/', { name: values.name.trim(), ...planOf(values) });
    navigate(paths.plan(plan.name));
  });
  return html`<${Dialog} title="New plan" onClose=${onClose}><${Form} form=${form} submit="Create plan">
    <${TextField} form=${form} name="name" label="Name" hint="Lower-case letters, digits, - and _, such as growth. It cannot be changed." mono autofocus />
    <${LimitFields} form=${form} /><//><//>`;
}

export function Plan({ name }) {
  const { data: plan, error, reload } = useLoad((signal) => api.get(`/plans/${encodeURIComponent(name)}/`, { signal }), [name]);
  const [deleting, setDeleting] = useState(false);
  const writes = can('platform:write');
  return html`<${Page} title=${name} crumbs=${[['Plans', href(paths.plans)]]}
    actions=${plan && writes && html`<${Button} onClick=${() => setDeleting(true)}>Delete plan…<//>`}>
    ${(error || !plan) && html`<${Loading} error=${error} retry=${reload} />`}
    ${plan && (writes ? html`<${EditPlan} key=${JSON.stringify(plan)} plan=${plan} reload=${reload} />`
      : html`<${Facts} items=${limits.map(([field, label, show]) => [label, show(plan[field])])} />`)}
    ${deleting && html`<${Deletion} title=${`Delete the plan ${name}?`} action="Delete plan" said=${`Deleted the plan ${name}.`}
      path=${`/plans/${encodeURIComponent(name)}/`} to=${paths.plans} onClose=${() => setDeleting(false)}>
      <p>Only a plan that no organization is on can be deleted. Otherwise nothing happens, and you see why.</p><//>`}
  <//>`;
}

function EditPlan({ plan, reload }) {
  const [asked, setAsked] = useState(null); // the plan after the change, while the dialog is open
  const save = async (to) => {
    await api.patch(`/plans/${encodeURIComponent(plan.name)}/`, Object.fromEntries(Object.entries(to).filter(([field, value]) => value !== plan[field])));
    await reload();
    return `Changed the plan ${plan.name}.`;
  };
  const form = useForm(fieldsOf(plan), async (values) => {
    const to = planOf(values);
    const isSound = Object.values(to).every((value) => typeof value !== 'string' && !(value < 0));
    if (isSound) setAsked(to);
    else await save(to); // the API says at which field
  });
  const same = limits.every(([field]) => planOf(form.values)[field] === plan[field]);
  return html`<${Form} form=${form} submit="Change plan…" disabled=${same}><${LimitFields} form=${form} /><//>
    ${asked && html`<${Confirm} title=${`Change the plan ${plan.name}?`} action="Change plan" onConfirm=${() => save(asked)} onClose=${() => setAsked(null)}>
      <${Changes} from=${plan} to=${asked} />
      <${Concerned} from=${plan} to=${asked} /><//>`}`;
}

const mostPages = 10; // of organizations that are counted
const mostAsked = 50; // organizations whose keys and subscriptions are counted

// Concerned says how many organizations a change of the plan concerns, and which of them have more than it allows then.
function Concerned({ from, to }) {
  const { data, error } = useLoad(async (signal) => {
    const on = [];
    let cursor = null, page = 0;
    do {
      const found = await api.get('/organizations/', { signal, query: { limit: 200, cursor }, organization: '' });
      on.push(...found.data.filter((o) => o.plan === from.name && !o.closed_at));
      cursor = found.next_cursor;
    } while (cursor && ++page < mostPages);
    const lowered = ['api_keys', 'subscriptions'].filter((what) => isLess(from, to, `max_${what}`));
    const over = !lowered.length || !actsEverywhere() ? [] : await Promise.all(on.slice(0, mostAsked).map(async ({ id, name }) => {
      const has = await api.get('/usage/', { signal, organization: id });
      const more = lowered.filter((what) => has[what] > to[`max_${what}`]).map((what) => `${number(has[what])} ${what.replace('api_', 'API ')}`);
      return more.length ? `${name} (${more.join(', ')})` : [];
    }));
    return { n: on.length, text: (cursor ? 'At least ' : '') + count(on.length, 'organization'),
      over: over.flat(), isPart: lowered.length > 0 && (cursor || on.length > mostAsked) };
  }, []);
  if (error) return html`<${ErrorBar} error=${error} />`;
  return html`<p aria-busy=${!data}>${data ? html`<strong class="strong">${data.text}</strong> on the plan` : 'All organizations on the plan'}
    ${' '}${data?.n === 1 ? 'has' : 'have'} these limits from the next request and the next attempt on.</p>
    ${data?.over.length > 0 && html`<p><strong class="strong">Over the new limit:</strong> <bdi>${data.over.join(', ')}</bdi>.</p>`}
    ${data?.isPart && html`<p class="quiet">Only the newest ${mostAsked} organizations were compared with the new limit.</p>`}`;
}

const isLess = (from, to, field) => to[field] !== null && (from[field] === null || to[field] < from[field]);

// Changes shows what a change of a plan, or to another plan, means: each limit now and then. For one organization, subscriptions
// and keys are how many it has.
export function Changes({ from, to, subscriptions, keys }) {
  const changed = limits.filter(([field]) => from[field] !== to[field]);
  const less = changed.some(([field]) => field.startsWith('max_') && isLess(from, to, field));
  const over = [['API key', keys, to.max_api_keys, to.api_keys], ['subscription', subscriptions, to.max_subscriptions, to.webhooks]]
    .filter(([, n, limit, has]) => has && limit !== null && n > limit);
  if (!changed.length) return html`<p>The limits stay as they are.</p>`;
  return html`<table class="table changes"><caption class="hidden-label">What changes</caption>
      <thead><tr><th scope="col">Limit</th><th scope="col" class="size-s">Now</th><th scope="col" class="size-s">Then</th></tr></thead>
      <tbody>${changed.map(([field, label, show]) => html`<tr key=${field}><td>${label}</td>
        <td class="size-s quiet">${show(from[field])}</td><td class="size-s strong">${show(to[field])}</td></tr>`)}</tbody></table>
    ${from.webhooks && !to.webhooks && html`<p><strong class="strong">
      ${subscriptions >= 0 ? count(subscriptions, 'subscription stops', 'subscriptions stop') : 'All subscriptions stop'}.</strong>
      ${' '}What waits stays, and is sent when the plan has webhooks again.</p>`}
    ${from.api_keys && !to.api_keys && html`<p><strong class="strong">
      ${keys >= 0 ? count(keys, 'API key is', 'API keys are') : 'All API keys are'} refused</strong>
      ${' '}until the plan has API keys again.</p>`}
    ${over.length > 0 && html`<p><strong class="strong">Over the new limit:</strong>
      ${' '}${over.map(([what, n, limit]) => `${count(n, what)} of ${limit}`).join(', ')}.</p>`}
    ${less && html`<p>A lower limit deletes nothing. It only stops the creation of more.</p>`}`;
}

const LimitFields = ({ form }) => html`
  <${CheckField} form=${form} name="api_keys" label="API keys" hint="Organizations on this plan can create and use API keys." />
  <${CheckField} form=${form} name="webhooks" label="Webhooks" hint="Organizations on this plan can receive events." />
  <${TextField} form=${form} name="api_rate_limit_per_minute" label="Requests a minute"
    inputmode="numeric" hint="Of each API key. Empty: no limit. 0 refuses all." />
  <${TextField} form=${form} name="max_api_keys" label="Active API keys" inputmode="numeric" hint="Of each organization. Empty: 10,000." />
  <${TextField} form=${form} name="max_subscriptions" label="Subscriptions" inputmode="numeric" hint="Of each organization. Empty: 5,000." />
  <${TextField} form=${form} name="max_stored_bytes_per_day" label="Stored data a day, in GB" inputmode="decimal"
    hint="Of each organization: its events and deliveries. Empty: no limit." />`;

// fieldsOf makes the values of the form from a plan, and planOf a plan from the values. What is no number is left to the API.
function fieldsOf(plan) {
  const text = (n) => (n === null || n === undefined ? '' : String(n));
  const { max_stored_bytes_per_day: stored } = plan;
  return {
    api_keys: plan.api_keys, webhooks: plan.webhooks, api_rate_limit_per_minute: text(plan.api_rate_limit_per_minute),
    max_api_keys: text(plan.max_api_keys), max_subscriptions: text(plan.max_subscriptions), max_stored_bytes_per_day: text(stored && stored / 1e9),
  };
}

function planOf(values) {
  const amount = (text, unit = 1) => {
    const typed = text.replace(/[\s,]/g, '');
    if (typed === '') return null;
    return Number.isNaN(Number(typed)) ? text : Math.round(Number(typed) * unit * 1e6) / 1e6;
  };
  return {
    api_keys: values.api_keys, webhooks: values.webhooks, api_rate_limit_per_minute: amount(values.api_rate_limit_per_minute),
    max_api_keys: amount(values.max_api_keys), max_subscriptions: amount(values.max_subscriptions),
    max_stored_bytes_per_day: amount(values.max_stored_bytes_per_day, 1e9),
  };
}
