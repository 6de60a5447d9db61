// What the server of a customer gets, beside the form of a subscription.
import { html, useState } from '../../ui/html.js';
import { Code, Headers } from '../../ui/code.js';
import { settings } from '../../settings.js';
import { useSession } from '../../session.js';
import { wants } from './test.js';

// Example shows what the address gets: an event of the first chosen type that has an example.
export function Example({ types, chosen, headers }) {
  const [now] = useState(() => new Date());
  const found = types.find((t) => t.example && wants({ event_types: chosen }, t.type));
  const type = found?.type ?? chosen.find((each) => !each.endsWith('*')) ?? 'order.paid';
  const body = { id: 'evt_…', type, timestamp: now.toISOString(), organization_id: useSession().me.organization.id, data: found?.example ?? { order: 1001 } };
  const own = headers.filter((h) => h.name.trim()).map((h) => [h.name.trim(), '***']);
  const seconds = String(Math.floor(now / 1000));
  return html`<section class="card stack preview-card wide" aria-label="Example of a delivery">
    <h2>What your server gets</h2>
    <${Headers} label="Headers of a delivery" items=${[['Content-Type', 'application/json'], [`${settings.prefix}-Timestamp`, seconds],
      [`${settings.prefix}-Signature`, '…'],
      ['Webhook-Id', 'evt_…'], ['Webhook-Timestamp', seconds], ['Webhook-Signature', 'v1,…'], ...own]} />
    <${Code} label="Body of a delivery" text=${JSON.stringify(body)} pretty copy=${false} />
    <p class="quiet small">A status from 200 to 299 is a success. After any other answer, or none, the delivery is repeated later.</p>
  </section>`;
}
