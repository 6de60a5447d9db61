// Filters of a list. Their values are in the query of the URL, so a filtered list can be shared.
import { html, cx, useState, useEffect, useId } from './html.js';
import { LinkButton } from './button.js';
import { Empty } from './state.js';
import { isOperator, session } from '../session.js';
import { useQuery, href, place } from '../router.js';
import { toField, fromField } from './time.js';

// Filters has a link that clears those among its direct children that are set.
export function Filters({ children }) {
  const [query] = useQuery();
  const names = [children].flat(Infinity).flatMap((child) => (child?.type === Range ? ['range', 'since', 'until'] : child?.props?.name ?? []));
  const cleared = Object.fromEntries(names.map((name) => [name, null]));
  return html`<div class="filters" role="search" aria-label="Filters">${children}
    ${names.some((name) => query[name])
      && html`<a class="plain link accent" aria-label="Clear filters" href=${href(place.get().path, { ...query, ...cleared })}>Clear</a>`}</div>`;
}

// NoneLike is in the place of a list whose filters leave nothing.
export const NoneLike = ({ title, text = 'The list shows the others without this filter.' }) => html`<${Empty} title=${title} text=${text}>
  <${LinkButton} href=${href(place.get().path)}>Clear filters<//><//>`;

// NoneHere is in the place of an empty list. Other organizations may have what an operator looks for.
export const NoneHere = ({ what, how = 'How to begin', children, ...first }) => (isOperator() ? html`<${Empty}
    title=${html`<bdi>${session.get().me.organization.name}</bdi> has no ${what}`}>
  <${LinkButton} kind="primary" href=${href(place.get().path, { in: 'all' })}>Show all organizations<//>
  ${children && html`<details class="more-options"><summary>${how}</summary><div>${children}</div></details>`}<//>`
  : html`<${Empty} ...${first}>${children}<//>`);

// Everywhere lets an operator see all organizations. Its name is "in".
export const Everywhere = ({ name }) => isOperator() && html`<${Choice} name=${name} label="Organization" all="This one" options=${[['all', 'All']]} />`;

// Choice is a selection of one value: options are [[value, text]], or [[group, options]]. all is the text for none. fixed: it has its
// width before the options are there.
export function Choice({ name, label, options, all = 'All', fixed }) {
  const [query, setQuery] = useQuery();
  const id = useId();
  return html`<div class=${cx('filter', query[name] && 'set', fixed && 'fixed')}><label for=${id}>${label}</label>
    <select id=${id} value=${query[name] ?? ''} onChange=${(e) => setQuery({ [name]: e.target.value })}>
      <option value="">${all}</option>
      ${optionsOf(options)}
    </select></div>`;
}

const optionsOf = (options) => options.map(([value, text]) => (Array.isArray(text) ? html`<optgroup key=${value} label=${value}>${optionsOf(text)}</optgroup>`
  : html`<option key=${value} value=${value}>${text}</option>`));

// TextFilter takes effect with Enter, or when one leaves it. suggestions is optional. clean changes what was typed before it gets
// into the URL.
export function TextFilter({ name, label, placeholder, suggestions, clean = (typed) => typed }) {
  const [query, setQuery] = useQuery();
  const [text, setText] = useState(query[name] ?? '');
  const id = useId();
  useEffect(() => setText(query[name] ?? ''), [query[name]]);
  const apply = () => {
    const wanted = clean(text.trim());
    setText(wanted);
    if (wanted !== (query[name] ?? '')) setQuery({ [name]: wanted });
  };
  return html`<form class=${cx('filter', query[name] && 'set')} onSubmit=${(e) => { e.preventDefault(); apply(); }}><label for=${id}>${label}</label>
    <input id=${id} value=${text} size=${Math.max(12, placeholder?.length ?? 0)} placeholder=${placeholder}
      autocomplete="off" spellcheck="false" dir="auto" list=${suggestions ? id + 'l' : undefined}
      onInput=${(e) => setText(e.target.value)} onBlur=${apply} onChange=${suggestions && apply} />
    ${suggestions && html`<datalist id=${id + 'l'}>${suggestions.map((s) => html`<option key=${s} value=${s} />`)}</datalist>`}
  </form>`;
}

function TimeFilter({ name, label }) {
  const [query, setQuery] = useQuery();
  const id = useId();
  return html`<div class=${cx('filter time', query[name] && 'set')}><label for=${id}>${label}</label>
    <input type="datetime-local" id=${id} value=${toField(query[name])} onChange=${(e) => setQuery({ [name]: fromField(e.target.value) })} /></div>`;
}

const ranges = { '1h': ['Last hour', 36e5], '24h': ['Last 24 hours', 864e5], '7d': ['Last 7 days', 6048e5],
  '30d': ['Last 30 days', 2592e6], '1y': ['Last year', 31536e6] };

// Range is the time filter "range", with two points in time for a period of one's own. rangeStart gives the API its since, in
// whole minutes so that a poll asks the same; rangeOf gives since and until. Without a choice, both use the range fallback.
export function Range() {
  const options = Object.entries(ranges).slice(0, 4).map(([value, [text]]) => [value, text]);
  return html`<${Choice} name="range" label="Time" all="Any time" options=${[...options, ['custom', 'From … to …']]} /><${Between} />`;
}

// Between are the two points in time of a period of one's own.
export function Between() {
  const [query] = useQuery();
  return query.range === 'custom' && html`<${TimeFilter} name="since" label="Since" /><${TimeFilter} name="until" label="Until" />`;
}

export const rangeOf = ({ range, since, until }, fallback) => (range === 'custom' ? { since: since ?? rangeStart(fallback), until }
  : { since: rangeStart(range, fallback) });

export function rangeStart(range, fallback) {
  const [, ms] = ranges[range] ?? ranges[fallback] ?? [];
  return ms && new Date(Math.floor((Date.now() - ms) / 6e4) * 6e4).toISOString();
}

// Tabs are links that set one value of the query: items are [[value, text, count?]]. The first one is the default.
export function Tabs({ name = 'tab', label, items }) {
  const [query] = useQuery();
  const now = query[name] ?? items[0][0];
  return html`<nav class="tabs" aria-label=${label}>${items.map(([value, text, n], i) => html`<a key=${value}
    href=${href(place.get().path, { ...query, [name]: i === 0 ? null : value })} aria-current=${value === now ? 'page' : undefined}
    >${text}${n !== undefined && html`<span class="quiet">${n}</span>`}</a>`)}</nav>`;
}

// Segments is a short choice as links, such as the period of a chart: items are [[value, text]]. none is not in the URL.
export function Segments({ name, label, items, value, none = items[0][0] }) {
  const [query] = useQuery();
  const others = (each) => (each === 'custom' ? query : { ...query, since: null, until: null }); // these belong to custom alone
  return html`<nav class="periods" aria-label=${label}>${items.map(([each, text]) => html`<a key=${each} class="period"
    aria-current=${each === value ? 'page' : undefined}
    href=${href(place.get().path, { ...others(each), [name]: each === none ? null : each })}><bdi>${text}</bdi></a>`)}</nav>`;
}
