// What a page shows instead of data: while it loads, when there is nothing, and when something is wrong.
import { html, cx, named } from './html.js';
import { Icon } from './icon.js';
import { Copy } from './copy.js';
import { place } from '../router.js';
import { useElsewhere } from '../elsewhere.js';
import { said } from '../session.js';

// Skeleton holds the place of rows while they load. It appears after a moment, so a fast answer does not flicker.
export const Skeleton = ({ rows = 8 }) => html`<div class="skeleton" role="status" aria-label="Loading">
  ${Array.from({ length: rows }, (_, i) => html`<div key=${i} />`)}
</div>`;

// Empty teaches: what will be here, and how to get it. children are buttons or code.
export const Empty = ({ title, text, children }) => html`<div class="empty">
  <h2>${named(title)}</h2>
  ${text && html`<p class="quiet">${named(text)}</p>`}
  ${children}
</div>`;

const mends = {
  permission_denied: 'Your role does not allow this. Ask somebody with the role “owner”, or an operator.',
  plan_capability_required: 'The plan of this organization does not have this. An operator can change the plan.',
};

// What these pages show belongs to no organization.
const ofPlatform = /^\/(organizations|users|plans|roles|permissions)\//;

function mendOf({ code }) {
  if (code === 'not_found') return ofPlatform.test(place.get().path) ? 'It was deleted, or its address is wrong.'
    : 'It was deleted, or it is not in this organization.';
  return mends[code] ?? '';
}

// ErrorBar says what happened and what to do, and has the request id for a question to the operator. retry is optional.
export function ErrorBar({ error, title, retry }) {
  if (!error) return null;
  const fields = Object.entries(error.fields ?? {}).filter(([, text]) => text !== error.message);
  return html`<${Bar} tone="danger" title=${title}>
    <p><bdi>${said(error.message)}</bdi> ${said(mendOf(error))}</p>
    ${fields.length > 0 && html`<ul>${fields.map(([name, text]) => html`<li key=${name}><code>${name}</code>: <bdi>${said(text)}</bdi></li>`)}</ul>`}
    <div class="row">
      ${retry && error.code !== 'not_found' && html`<button type="button" class="button" onClick=${() => retry()}>Try again</button>`}
      ${error.requestId && html`<span class="quiet small row">Request <code>${error.requestId}</code>
        <${Copy} text=${error.requestId} label="Copy the request id" /></span>`}
    </div>
  <//>`;
}

// Loading is in the place of what has not been loaded: rows while it loads, or the error.
export function Loading({ error, title, retry, rows }) {
  const isLooking = useElsewhere(error);
  return error && !isLooking ? html`<${ErrorBar} error=${error} title=${title} retry=${retry} />` : html`<${Skeleton} rows=${rows} />`;
}

// Bar is a message that stays. tone: danger, warning, success or info. action is a button at its end.
export const Bar = ({ tone = 'info', title, action, children }) => html`<div class=${cx('bar', tone)} role=${tone === 'danger' ? 'alert' : 'status'}>
  <${Icon} name=${{ danger: 'bad', warning: 'warn', success: 'ok', info: 'info' }[tone]} class=${tone} />
  <div class="stack tight grow">${title && html`<strong class="strong">${named(title)}</strong>`}${children}</div>
  ${action && html`<div class="row">${action}</div>`}
</div>`;
