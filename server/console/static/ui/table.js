// A list of rows with its states: loading, empty, error, more.
//
// The cell of the main column is the link of the row: the whole row follows it, and the keys j and k move between such links.
import { html, cx, named } from './html.js';
import { Button } from './button.js';
import { Skeleton, ErrorBar } from './state.js';
import { count } from './time.js';
import { href as hrefOf, place, useQuery } from '../router.js';

// A column has: head (text), cell (row → text or elements), main, size (xs s m l xl; the rest shares what is left), number (aligned
// right), wide (hidden on a narrow screen), roomy (hidden below 1280 px), label (head for screen readers only), sort (the value of ?sort=, by which the page
// sorts), down (the largest first), isUsual (the list has this order without ?sort=). selected is the key of a row.
export function Table({ label, list, columns, href, rowKey = (row) => row.id, selected, empty, skeleton = 8 }) {
  if (list.error && !list.rows) return html`<${ErrorBar} error=${list.error} retry=${list.reload} />`;
  if (!list.rows) return html`<${Skeleton} rows=${skeleton} />`;
  const isEmpty = list.rows.length === 0 && !list.more?.hasMore;
  return html`<div class="list">
    ${list.error && html`<${ErrorBar} error=${list.error} retry=${list.reload} />`}
    ${list.arrived > 0 && html`<button type="button" class="arrived" onClick=${list.showArrived}>${list.arrived} new</button>`}
    ${isEmpty ? empty : html`<table class="table" aria-busy=${list.loading}>
      <caption class="hidden-label">${label}</caption>
      <thead class=${cx(columns.every((c) => c.main || c.wide) && 'alone')}><tr>${columns.map((c) => html`<${Head} key=${c.head} column=${c} />`)}</tr></thead>
      <tbody data-rows>${list.rows.map((row) => html`<${Row} key=${rowKey(row)} row=${row} columns=${columns}
        href=${href?.(row)} selected=${selected !== undefined && selected === rowKey(row)} />`)}</tbody>
    </table>`}
    <${More} list=${list} />
  </div>`;
}

// Head sorts by its column; a second click takes that back.
function Head({ column: c }) {
  const [query] = useQuery();
  const is = c.sort && (query.sort ? query.sort === c.sort : c.isUsual);
  return html`<th scope="col" class=${sizeOf(c)} aria-sort=${is ? (c.down ? 'descending' : 'ascending') : undefined}>
    ${c.sort ? html`<a class="sort" href=${hrefOf(place.get().path, { ...query, sort: is ? null : c.sort })}>${named(c.head)}</a>`
    : html`<span class=${c.label ? 'hidden-label' : undefined}>${named(c.head)}</span>`}</th>`;
}

const Row = ({ row, columns, href, selected }) => html`<tr class=${cx(href && 'linked', selected && 'selected')}>
  ${columns.map((c) => html`<${c.main ? 'th' : 'td'} key=${c.head} scope=${c.main ? 'row' : undefined} class=${sizeOf(c)}>
    ${c.main && href ? html`<a class="row-link" href=${href} aria-current=${selected ? 'true' : undefined}>${c.cell(row)}</a>` : c.cell(row)}
  <//>`)}
</tr>`;

const sizeOf = (c) => cx(c.size && `size-${c.size}`, c.number && 'number', c.wide && 'wide', c.roomy && 'roomy', c.main && 'main');

// More has the button for the next page of a list.
export function More({ list: { more, loadMore, rows } }) {
  if (!more?.hasMore && !more?.error) return null;
  return html`<div class="more">
    ${more.error && html`<${ErrorBar} error=${more.error} />`}
    <${Button} onClick=${loadMore}>Show more<//>
    <span class="quiet small" role="status">${count(rows.length, 'row')} shown</span>
  </div>`;
}
