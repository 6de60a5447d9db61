// What a key or an organization used on each of the last 30 days, in UTC. A day without usage has no row.
import { html } from './html.js';
import { Section } from './page.js';
import { Table } from './table.js';
import { useList } from './hooks.js';

// The columns are heads with what a cell shows. organization is another one than that of the page.
export function Usage({ path, query, columns, none, organization }) {
  const id = (u) => u.period;
  const list = useList(path, query, { id, limit: 7, poll: 30_000, options: { organization } });
  return html`<${Section} title="Usage in the last 30 days">
    <${Table} label="Usage by day" list=${list} rowKey=${id} skeleton=${2} empty=${html`<p class="quiet">${none}</p>`} columns=${[
      { head: 'Day (UTC)', main: true, cell: (u) => html`<span class="nowrap">${u.period}</span>` },
      ...columns.map(([head, cell], i) => ({ head, cell, size: 's', number: true, wide: i > 1 })),
    ]} /><//>`;
}
