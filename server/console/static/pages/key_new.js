// Create an API key: name, permissions, expiry and metadata, with a preview of what is granted.
import { html, useState } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Form, useForm, Field, TextField, SelectField, TimeField } from '../ui/form.js';
import { Pairs } from '../ui/pairs.js';
import { ErrorBar } from '../ui/state.js';
import { exactTime, number } from '../ui/time.js';
import { useLoad } from '../ui/hooks.js';
import { api, ApiError } from '../api.js';
import { href, useQuery } from '../router.js';
import { can, isOperator, useSession } from '../session.js';
import { paths } from '../paths.js';
import { NoPlan } from './keys.js';
import { ScopeField, Granted, words } from './key/scope.js';
import { NewSecret, keyCrumbs } from './key/secret.js';

const expiries = [['', 'Never'], ['30', 'In 30 days'], ['90', 'In 90 days'], ['365', 'In a year'], ['at', 'At a time…']];
const maxMetadata = 2048;

export function NewKey() {
  const { me } = useSession();
  const [query] = useQuery();
  const [made, setMade] = useState(null);
  const form = useForm({ name: query.name ?? '', scope: words(query.scope), expires_at: '',
    at: '', allowed_networks: '', metadata: [], user_id: '' }, async (v) => {
    const body = { name: v.name.trim(), scope: granted.join(' '), expires_at: endOf(v), metadata: objectOf(v.metadata), user_id: v.user_id || undefined,
      allowed_networks: words(v.allowed_networks.replaceAll(',', ' ')) };
    check(body, v);
    setMade(await api.post('/api-keys/', body));
  });
  const { owners, about, error, reload } = useOwners();
  const owner = owners?.find((o) => o.id === form.values.user_id);
  const { scope: chosen } = form.values;
  const held = owner?.held ?? [];
  const granted = chosen.filter((key) => held.includes(key));

  if (made) return html`<${Page} title=${`New API key “${made.name}”`} crumbs=${keyCrumbs()}><${NewSecret} made=${made} /><//>`;
  if (!me.plan.api_keys) return html`<${Page} title="New API key" crumbs=${keyCrumbs()}><${NoPlan} plan=${me.plan} /><//>`;
  return html`<${Page} title="New API key" crumbs=${keyCrumbs()}>
    <${ErrorBar} error=${error} retry=${reload} />
    <div class="previewed"><${Form} form=${form} submit="Create API key" cancel=${href(paths.keys)} disabled=${!owner}>
      <${TextField} form=${form} name="name" label="Name" placeholder="Back end in production" hint="Where the key is used, so that you recognize it later." />
      ${owners?.length > 1 && html`<${SelectField} form=${form} name="user_id" label="Belongs to" options=${owners.map((o) => [o.id, o.name])}
        hint=${owner?.who === 'the service account' ? 'The key belongs to the organization, and works whoever leaves it.'
          : 'The key acts as this user, and stops working when the user leaves the organization.'} />`}
      ${owner ? html`<${ScopeField} form=${form} held=${held} about=${about} />` : html`<div class="scopes waiting" aria-busy=${!error} />`}
      <${SelectField} form=${form} name="expires_at" label="Expires" options=${expiries} hint=${endText(form.values)} />
      ${form.values.expires_at === 'at' && html`<${TimeField} form=${form} name="at" label="Expires at" />`}
      <${TextField} form=${form} name="allowed_networks" label="Networks" optional mono placeholder="203.0.113.0/24 2001:db8::7"
        hint="Addresses and networks from which the key may be used. Empty: everywhere. They never change." />
      <${Metadata} form=${form} />
      <section class="card stack preview-card" aria-label="Preview" aria-live="polite">
        <h2>This key may</h2>
        <${Granted} chosen=${chosen} held=${held} about=${about} why=${(key) => whyNot(key, owner, about)}
          remove=${(key) => form.set('scope', chosen.filter((k) => k !== key))} />
        <p class="quiet small">It acts as <bdi>${owner?.who ?? 'you'}</bdi> in <bdi>${me.organization.name}</bdi>.
          Its permissions never grow: for more, create another key.</p>
      </section>
    <//></div>
  <//>`;
}

// whyNot says why a key cannot get a permission. Only operators know which permissions exist.
function whyNot(key, owner, about) {
  if (!/^[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)+$/.test(key)) return 'This is not the name of a permission.';
  if (about.size === 0) return 'You do not have it, or it does not exist.';
  if (!about.has(key)) return 'There is no such permission.';
  return can(key) && owner?.who !== 'you' ? `The role of ${owner?.who} does not have it.` : 'You do not have it.';
}

// useOwners returns the users to whom the key can belong, with the permissions that each can get. Operators can name a member. In
// another organization, their keys belong to its service account. about has the descriptions of permissions, for operators.
function useOwners() {
  const { me, home } = useSession();
  const isElsewhere = me.organization.id !== home.organization.id;
  const { data, error, reload } = useLoad(async (signal) => {
    const you = { id: '', name: `You (${me.user.name})`, who: me.user.kind === 'service' ? 'the service account' : 'you', held: me.permissions };
    if (!isOperator()) return { owners: [you], about: new Map() };
    const get = async (path) => (await api.get(path, { signal, query: { limit: 200 } })).data;
    const [permissions, roles, members] = await Promise.all([get('/permissions/'), get('/roles/'), get(`/organizations/${me.organization.id}/members/`)]);
    const held = (role) => (roles.find((r) => r.name === role)?.permissions ?? []).filter(can);
    const others = members.filter((m) => m.user_id !== me.user.id && !(isElsewhere && m.kind === 'service')).map((m) => (
      { id: m.user_id, name: `${m.name} (${m.role})`, who: m.name, held: held(m.role) }));
    const own = members.find((m) => m.user_id === me.user.id);
    const service = { id: '', name: `Service account of ${me.organization.name}`, who: 'the service account', held: held('owner') };
    const first = !isElsewhere ? you : own ? { ...you, held: held(own.role) } : service;
    return { owners: [first, ...can('platform:act_as') ? others : []], about: new Map(permissions.map((p) => [p.key, p.description])) };
  }, []);
  return { owners: data?.owners, about: data?.about ?? new Map(), error, reload };
}

// endOf is the expiry in a form, as an RFC 3339 time or null.
function endOf({ expires_at, at }) {
  if (expires_at === 'at') return at || null;
  return expires_at ? new Date(Date.now() + expires_at * 864e5).toISOString() : null;
}

function endText(values) {
  const end = endOf(values);
  if (end) return Date.parse(end) > Date.now() && `Requests are refused from ${exactTime(end)} on.`;
  return !values.expires_at && 'The key works until it is revoked.';
}

const filled = (rows) => rows.filter((row) => row.name || row.value);
const objectOf = (rows) => Object.fromEntries(filled(rows).map(({ name, value }) => [name, value]));
const sizeOf = (rows) => new TextEncoder().encode(JSON.stringify(objectOf(rows))).length;

// check refuses what the API would refuse too, but all at once and before it is sent.
function check(body, { scope, expires_at, metadata }) {
  const keys = filled(metadata).map((row) => row.name);
  const errors = [
    ['name', !body.name && 'Give the key a name.'],
    ['scope', !body.scope && (scope.length ? 'Nothing of this can be granted. Choose a permission that you hold.' : 'Choose at least one permission.')],
    ['at', expires_at === 'at' && !body.expires_at && 'Choose a date and a time.'],
    ['at', body.expires_at && Date.parse(body.expires_at) < Date.now() && 'Choose a time in the future.'],
    ['metadata', keys.includes('') && 'Each value needs a name.'],
    ['metadata', new Set(keys).size < keys.length && 'Two values have the same name.'],
    ['metadata', sizeOf(metadata) > maxMetadata && `This is ${number(sizeOf(metadata))} bytes. At most ${number(maxMetadata)} are allowed.`],
  ].filter(([, message]) => message).map(([field, message]) => ({ field, message }));
  if (errors.length) throw new ApiError({ title: 'Not sent', detail: 'Correct the fields first.', errors });
}

function Metadata({ form }) {
  const rows = form.values.metadata;
  return html`<${Field} form=${form} name="metadata" label="Metadata" optional
      hint=${`Your own data about the key, such as the number of a customer. Reads and verifications return it. ${rows.length
        ? `${number(sizeOf(rows))} of ${number(maxMetadata)} bytes.` : ''}`}>
    ${(attributes) => html`<div class="stack tight" role="group" ...${attributes} aria-label="Metadata">
      <${Pairs} rows=${rows} set=${(next) => form.set('metadata', next)} add="Add a value" examples=${() => ['Name', 'Value']} />
    </div>`}
  <//>`;
}
