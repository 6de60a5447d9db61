// The response headers of an attempt, folded. The receiver's id of the request is visible.
import { html } from '../../ui/html.js';
import { Headers } from '../../ui/code.js';
import { Id } from '../../ui/copy.js';
import { count } from '../../ui/time.js';

const known = /(request|correlation|trace)-?id$|^cf-ray$|^x-vercel-id$/i;

export function ResponseHeaders({ headers }) {
  const items = Object.entries(headers);
  if (!items.length) return null;
  const [name, id] = items.find(([each]) => known.test(each)) ?? [];
  return html`${id && html`<p class="row"><span class="quiet">${name}</span><${Id} value=${id} /></p>`}
    <details class="more-options"><summary>${count(items.length, 'response header')}</summary>
      <${Headers} label="Headers of the response" items=${items} /></details>`;
}
