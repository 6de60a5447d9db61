// The first steps of a new instance. Each is marked when it is done.
import { html, useRef } from '../../ui/html.js';
import { Section } from '../../ui/page.js';
import { Icon } from '../../ui/icon.js';
import { LinkButton } from '../../ui/button.js';
import { href } from '../../router.js';
import { can } from '../../session.js';
import { paths } from '../../paths.js';

const steps = [
  ['Create a subscription', 'The address that receives events, and the types that it wants.', paths.subscriptionNew, 'New subscription', 'webhooks:write'],
  ['Create an API key', 'Your application publishes events with it.', paths.keyNew, 'New API key', 'api_keys:write'],
  ['Publish an event', 'Watch it arrive. After that, your application does this.', paths.eventNew, 'Publish an event', 'events:write'],
];

// Start is shown until every step is done. It stays until the page is left, so one sees the last mark.
export function Start({ state: { steps: done } }) {
  const open = useRef(false);
  open.current ||= done.some((d) => d === false);
  if (!open.current) return null;
  const next = done.indexOf(false);
  return html`<${Section} title=${next < 0 ? 'All three steps are done' : 'Three steps to the first delivery'}>
    <ol class="problems">${steps.map(([title, text, path, action, needs], i) => html`<li key=${title}>
      <span class="badge"><${Icon} name=${done[i] ? 'ok' : 'circle'} class=${done[i] ? 'success' : 'quiet'} /><span class=${done[i] ? undefined : 'quiet'}>${done[i] ? 'Done' : `Step ${i + 1}`}</span></span>
      <div class="grow"><h3>${title}</h3><p class="quiet">${text}</p></div>
      ${!done[i] && can(needs) && html`<${LinkButton} kind=${i === next ? 'primary' : ''} href=${href(path)}>${action}<//>`}
    </li>`)}</ol>
  <//>`;
}
