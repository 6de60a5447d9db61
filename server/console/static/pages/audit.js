// The audit log: who changed what, when, and from where.
import { html, cx, useMemo } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { Filters, Choice, Range, TextFilter, rangeOf, Everywhere, NoneLike } from '../ui/filters.js';
import { Empty } from '../ui/state.js';
import { Time } from '../ui/time.js';
import { useList } from '../ui/hooks.js';
import { href, place, useQuery } from '../router.js';
import { isOperator } from '../session.js';
import { Entry } from './audit/entry.js';
import { Sentence, itself, kindsFor } from './audit/words.js';

const filters = ['type', 'actor', 'target', 'range', 'since', 'until'];
const actors = { api_key: 'API key', system: 'at the server' };

export function Audit() {
  const [query] = useQuery();
  const everywhere = query.in === 'all' && isOperator();
  const period = useMemo(() => rangeOf(query), [query.range, query.since, query.until]);
  const list = useList('/audit-events/', {
    type: query.type, actor: query.actor, target: query.target, ...period, organization: everywhere ? 'all' : '',
  }, { poll: 5000 });
  const selected = query.id;

  const columns = [
    { head: 'Time', size: 'm', cell: (e) => html`<${Time} value=${e.at} form="log" />` },
    !selected && { head: 'Who', size: 'l', wide: true, cell: (e) => html`<${Actor} actor=${e.actor} />` },
    { head: 'What', main: true, cell: (e) => html`<span class="two-lines"><span class="cut"><${Sentence} entry=${e} /></span>
      <span class=${cx('small quiet', !selected && 'narrow-only')}><${Actor} actor=${e.actor} /></span></span>` },
    everywhere && !selected && { head: 'Organization', size: 'l', wide: true,
      cell: (e) => html`<span class="cut" title=${e.organization_id}><bdi>${e.organization_name}</bdi></span>` },
    !selected && { head: 'From', size: 'm', wide: true, cell: (e) => html`<span class="quiet cut">${e.ip ?? '–'}</span>` },
  ].filter(Boolean);

  return html`<${Page} title="Audit log">
    <div class=${cx('stack gap', selected && 'detail-open')}>
      <div class="list-only"><${Filters}>
        <${Choice} name="type" label="What" options=${kindsFor(isOperator())} />
        <${ActorFilter} rows=${list.rows} />
        <${TextFilter} name="target" label="Target" placeholder="sub_…, key_…" />
        <${Range} />
        <${Everywhere} name="in" />
      <//></div>
      <div class=${cx('split', selected && 'open')}>
        <${Table} label="Audit log" list=${list} columns=${columns} selected=${selected}
          href=${(e) => href(place.get().path, { ...query, id: e.id })}
          empty=${filters.some((name) => query[name])
            ? html`<${NoneLike} title="No entry matches the filters" text="Without filters, the list has all entries that are kept." />`
            : html`<${Empty} title="Nothing has changed yet"
            text="Each change to keys, subscriptions, members and settings appears here, with who made it." />`} />
        ${selected && html`<${Entry} key=${selected} id=${selected} row=${list.rows?.find((e) => e.id === selected)} />`}
      </div>
    </div>
  <//>`;
}

const Actor = ({ actor }) => (actor.id === null ? html`<span class="quiet">${itself()}</span>`
  : html`<span class="cut" title=${actor.id}><bdi>${actor.name}</bdi>
    ${actors[actor.type] && html` <span class="quiet small">${actors[actor.type]}</span>`}</span>`);

// ActorFilter offers those who have made the changes of the list.
function ActorFilter({ rows = [] }) {
  const [query] = useQuery();
  const known = new Map([['system', itself()]]);
  if (query.actor) known.set(query.actor, query.actor);
  for (const { actor } of rows) if (actor.id) known.set(actor.id, actor.name);
  return html`<${Choice} name="actor" label="Who" options=${[...known]} />`;
}
