// An API key: whether it works, when it was used, what it may do, and its history; rotate, revoke, explain a request.
import { html, useState } from '../ui/html.js';
import { Page, Section, Facts } from '../ui/page.js';
import { Button } from '../ui/button.js';
import { Id } from '../ui/copy.js';
import { Code } from '../ui/code.js';
import { Table } from '../ui/table.js';
import { Bar, ErrorBar, Loading } from '../ui/state.js';
import { Time, WithTimes, duration, number, TimeAndAge } from '../ui/time.js';
import { Usage } from '../ui/usage.js';
import { useList, useLoad, useRepeat } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, useQuery } from '../router.js';
import { can, linkTo, useSession } from '../session.js';
import { paths } from '../paths.js';
import { KeyStatus, Creator, NoPlan } from './keys.js';
import { Scope } from './key/scope.js';
import { Explain } from './key/explain.js';
import { NewSecret, keyCrumbs } from './key/secret.js';
import { Rotate, Revoke } from './key/end.js';

export function Key({ id }) {
  const { me } = useSession();
  const { data, error, reload } = useLoad((signal) => load(id, signal), [id]);
  const { key, checks = [] } = data ?? {};
  const isActive = key?.status === 'active';
  useRepeat(reload, isActive ? 15_000 : 0, [id]); // the last use
  const [asking, setAsking] = useState('');
  const [made, setMade] = useState(null);
  const [query] = useQuery();
  const [isExplained] = useState(Boolean(query.path || query.permission));

  if (!key) return html`<${Page} title="API key" crumbs=${keyCrumbs()}><${Loading} error=${error} retry=${reload} /><//>`;
  if (made) return html`<${Page} title=${`New key of “${key.name}”`} crumbs=${keyCrumbs()}><${NewSecret} made=${made} old=${key} /><//>`;
  const failed = checks.find((c) => c.verdict === 'failed');
  return html`<${Page} title=${key.name} crumbs=${keyCrumbs()} aside=${html`<${KeyStatus} apiKey=${key} />`}
    actions=${isActive && can('api_keys:write') && html`
      ${!key.rotated_to && html`<${Button} icon="reload" onClick=${() => setAsking('rotate')}>Rotate key…<//>`}
      <${Button} onClick=${() => setAsking('revoke')}>Revoke key…<//>`}>
    <${ErrorBar} error=${error} retry=${reload} />
    ${failed?.check === 'plan' ? html`<${NoPlan} plan=${me.plan} />` : failed && html`<${Bar} tone=${failed.check === 'permission' ? 'warning' : 'danger'}
      title=${failed.check === 'permission' ? 'Some of its permissions have no effect' : 'Requests with this key are refused now'}>
      <p><${WithTimes} text=${failed.detail} /></p><//>`}
    ${isActive && key.rotated_to
      && html`<${Bar} title="A new key replaces this one">
      <p>This key works until <${Time} value=${key.expires_at} form="exact" />. <a href=${href(paths.key(key.rotated_to))}>Open the new key</a></p><//>`}
    <div class="columns two">
      <${Section} title="Key"><${AboutKey} apiKey=${key} checks=${checks} /><//>
      <div class="stack loose">
        <${Section} title="What it may do"><${Scope} scope=${key.scope} /><//>
        ${Object.keys(key.metadata).length > 0
          && html`<${Section} title="Metadata"><${Code} label="Metadata" text=${JSON.stringify(key.metadata, null, 2)} /><//>`}
      </div>
    </div>
    <div class="columns two">
      <${Usage} path="/usage/keys/" query=${{ key_id: key.id }} columns=${uses} bar=${(u) => u.allowed} none="No request in the last 30 days." />
      ${can('audit:read') && html`<${History} key=${key.status + key.rotated_to} apiKey=${key} />`}
    </div>
    <details class="more-options" open=${isExplained}><summary>Explain a request…</summary><div><${Explain} id=${key.id} apiKey=${key} inUrl /></div></details>
    ${asking === 'rotate' && html`<${Rotate} apiKey=${key} onClose=${() => setAsking('')} onDone=${async (next) => { await reload(); setMade(next); }} />`}
    ${asking === 'revoke' && html`<${Revoke} apiKey=${key} onClose=${() => setAsking('')} onDone=${reload} />`}
  <//>`;
}

const uses = [['Allowed', (u) => number(u.allowed)], ['Rate limited', (u) => number(u.rate_limited)], ['Forbidden', (u) => number(u.forbidden)]];

// load returns the key, and, if it is active, the checks of a request that needs all its permissions.
async function load(id, signal) {
  const key = await api.get(`/api-keys/${id}/`, { signal });
  if (key.status !== 'active') return { key };
  const { checks } = await api.post('/auth/explain/', { key: id, method: 'GET', path: '/api/v1/whoami/', permission: key.scope }, { signal });
  return { key, checks };
}

function AboutKey({ apiKey: k, checks }) {
  const limit = checks.find((c) => c.check === 'rate_limit')?.value;
  const link = (id) => id && html`<${Id} value=${id} href=${href(paths.key(id))} />`;
  return html`<${Facts} items=${[
    ['Last use', html`<${Time} value=${k.last_used_at} none="Not used yet" />`],
    ['Created by', html`<${Creator} creator=${k.creator} />`],
    ['Created', html`<${TimeAndAge} value=${k.created_at} />`],
    ['Expires', html`<${Time} value=${k.expires_at} form="exact" none="Never" />`],
    ['Revoked', k.revoked_at && html`<${Time} value=${k.revoked_at} form="exact" />`],
    ['Networks', k.allowed_networks.join(', ') || null],
    ['Rate limit', limit === 'unlimited' ? 'No limit' : limit || null],
    ['Id', html`<${Id} value=${k.id} />`],
    ['Prefix', html`<${Id} value=${k.key_prefix} />`],
    ['Replaces', link(k.replaces)],
    ['Rotated to', link(k.rotated_to)],
  ]} />`;
}

const audit = (query) => linkTo(paths.audit, 'audit:read', query);

// History is what was done to the key. What was done with it is in the audit log.
function History({ apiKey: { id } }) {
  const list = useList('/audit-events/', { target: id });
  const columns = [
    { head: 'What', main: true, cell: (e) => what[e.type]?.(e.details) ?? e.type },
    { head: 'Who', size: 'm', cell: (e) => html`<span class="cut" title=${e.actor.id}><bdi>${e.actor.name}</bdi></span>` },
    { head: 'When', size: 'm', cell: (e) => html`<${Time} value=${e.at} form="log" />` },
  ];
  return html`<${Section} title="History" actions=${audit() && html`<a href=${audit({ actor: id })}>Changes made with this key</a>`}>
    <${Table} label="History" list=${list} columns=${columns} skeleton=${2} href=${(e) => audit({ target: id, id: e.id })}
      empty=${html`<p class="quiet">Nothing in the audit log. A key that replaces another one begins in the history of the other.</p>`} /><//>`;
}

const what = {
  api_key_created: () => 'Created',
  api_key_revoked: ({ reason }) => (reason === 'leaked' ? 'Reported as leaked, and revoked' : 'Revoked'),
  api_key_expiring: () => 'Its end was announced',
  api_key_rotated: ({ grace_seconds: s }) => (s ? `Rotated, with a grace of ${duration(s * 1000)}` : 'Rotated, and ended at once'),
};
