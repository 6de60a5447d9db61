// One entry of the audit log, with all that it says.
import { html } from '../../ui/html.js';
import { Facts } from '../../ui/page.js';
import { Tag } from '../../ui/badge.js';
import { Code } from '../../ui/code.js';
import { Id } from '../../ui/copy.js';
import { Icon } from '../../ui/icon.js';
import { Loading } from '../../ui/state.js';
import { Time, number, TimeAndAge } from '../../ui/time.js';
import { useLoad } from '../../ui/hooks.js';
import { api } from '../../api.js';
import { href, place, useQuery } from '../../router.js';
import { isOperator } from '../../session.js';
import { paths } from '../../paths.js';
import { wordsOf as sayError } from '../subscription/mend.js';
import { Sentence, hrefOf, itself } from './words.js';

// Entry shows a row of the list, or loads it, such as from a link.
export function Entry({ id, row }) {
  const [query] = useQuery();
  const { data, error, reload } = useLoad(async (signal) => row ?? api.get(`/audit-events/${encodeURIComponent(id)}/`, { signal }), [id]);
  const entry = row ?? data;
  const back = href(place.get().path, { ...query, id: null });
  return html`<section class="card stack panel" aria-label="Entry">
    <a class="back" href=${back}><${Icon} name="left" /> All entries</a>
    ${entry ? html`<${All} entry=${entry} query=${query} back=${back} />`
      : html`<${Loading} error=${error} title="This entry cannot be shown" retry=${reload} rows=${6} />`}
  </section>`;
}

function All({ entry: e, query, back }) {
  const changes = changesOf(e.details);
  const only = (name, value) => href(place.get().path, { ...query, [name]: value, id: e.id });
  return html`
    <div class="row spread one-line"><h2 class="grow"><${Sentence} entry=${e} isLinked /></h2>
      <a class="plain close" data-close href=${back} aria-label="Close the entry"><${Icon} name="cross" /></a></div>
    <${Facts} items=${[
      ['When', html`<${TimeAndAge} value=${e.at} />`],
      ['Who', html`<span class="row"><bdi>${e.actor.id ? e.actor.name : itself()}</bdi>
        <a class="small" href=${only('actor', e.actor.id ?? 'system')}>Only these changes</a></span>`],
      e.actor.id && ['Their id', html`<${Id} value=${e.actor.id} href=${hrefOf(e.actor)} />`],
      ['Target', e.target.id ? html`<span class="row"><${Id} value=${e.target.id} href=${hrefOf(e.target)} />
        <a class="small" href=${only('target', e.target.id)}>Its history</a></span>` : e.target.type],
      ['From', e.ip ? html`<${Id} value=${e.ip} />` : itself()],
      e.request_id && ['Request', html`<${Id} value=${e.request_id} />`],
      isOperator() && ['Organization',
        html`<a href=${href(paths.organization(e.organization_id))} title=${e.organization_id}><bdi>${e.organization_name}</bdi></a>`],
      ['Entry', html`<${Id} value=${e.id} />`],
      ['Type', html`<${Tag}>${e.type}<//>`],
    ]} />
    ${changes.length > 0 && html`<h3>Details</h3>
      <${Facts} items=${changes.map(([name, before, after]) => [wordsOf(name), before === undefined ? html`<${Value} name=${name} value=${after} />`
        : html`<span class="row"><s><${Value} name=${name} value=${before} /></s><span class="hidden-label">became</span>
          <${Icon} name="right" /><${Value} name=${name} value=${after} /></span>`])} />`}`;
}

// changesOf returns [name, before, after]: before is undefined unless the entry has a field previous_….
function changesOf(details) {
  return Object.entries(details).filter(([name]) => !(name.startsWith('previous_') && name.slice(9) in details))
    .map(([name, value]) => [name, details['previous_' + name], value]);
}

const words = { ip: 'IP', url: 'URL', api: 'API' };

// wordsOf makes "API rate limit per minute" from api_rate_limit_per_minute.
function wordsOf(name) {
  const text = name.split('_').map((word) => words[word] ?? word).join(' ');
  return text[0].toUpperCase() + text.slice(1);
}

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const ids = { key: 'api_key', sub: 'subscription', evt: 'event', org: 'organization', usr: 'user' };

function Value({ name, value }) {
  if (value === null || value === '') return html`<span class="quiet">None</span>`;
  if (typeof value === 'boolean') return value ? 'Yes' : 'No';
  if (typeof value === 'number') return number(value);
  if (Array.isArray(value)) return value.length === 0 ? html`<span class="quiet">None</span>`
    : html`<span class="tags wrap">${value.map((v, i) => html`<${Tag} key=${i}>${String(v)}<//>`)}</span>`;
  if (typeof value === 'object') return html`<${Code} label=${wordsOf(name)} text=${JSON.stringify(value)} pretty />`;
  if (time.test(value)) return html`<${Time} value=${value} form="exact" />`;
  if (name === 'scope' || name === 'scope_not_granted') return html`<span class="tags wrap">
    ${value.split(' ').map((v) => html`<${Tag} key=${v}>${v}<//>`)}</span>`;
  if (name === 'mend') return { recover: 'Recover the subscription', reactivate: 'Resume the subscription' }[value] ?? value;
  if (name === 'last_error') return html`<bdi>${sayError(value)}</bdi>`;
  const id = value.match(/^(key|sub|evt|org|usr)_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
  if (id) return html`<${Id} value=${value} href=${hrefOf({ type: ids[id[1]], id: value })} />`;
  return html`<bdi class="lines">${value}</bdi>`;
}

