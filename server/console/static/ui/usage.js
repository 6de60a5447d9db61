// What a key or an organization used on each of the last 30 days, in UTC. A day without usage has no row.
import { html } from './html.js';
import { Section } from './page.js';
import { Table } from './table.js';
import { useList } from './hooks.js';

// The columns are heads with what a cell shows. bar is the number that a bar shows. organization is another one than that of the page.
export function Usage({ path, query, columns, bar, none, organization }) {
  const id = (u) => u.period;
  const list = useList(path, query, { id, limit: 7, poll: 30_000, options: { organization } });
  const most = Math.max(1, ...(list.rows ?? []).map(bar));
  return html`<${Section} title="Usage in the last 30 days">
    <${Table} label="Usage by day" list=${list} rowKey=${id} skeleton=${2} empty=${html`<p class="quiet">${none}</p>`} columns=${[
      { head: 'Day (UTC)', main: true, size: 'm', cell: (u) => html`<span class="nowrap">${u.period}</span>` },
      ...columns.map(([head, cell], i) => ({ head, cell, size: 's', number: true, wide: i > 1 })),
      { head: 'Bar', label: true, wide: true, cell: (u) => html`<svg class="usage-bar" viewBox="0 0 ${most} 1" preserveAspectRatio="none"
        aria-hidden="true"><path class="spark-succeeded" d="M0 0H${bar(u)}V1H0z" /></svg>` },
    ]} /><//>`;
}
