// One event: did it arrive, and if not, why, and what to do.
import { html, useEffect, useRef } from '../ui/html.js';
import { Page, Section, Facts } from '../ui/page.js';
import { ErrorBar, Loading } from '../ui/state.js';
import { Code } from '../ui/code.js';
import { Tabs } from '../ui/filters.js';
import { Id } from '../ui/copy.js';
import { number, TimeAndAge } from '../ui/time.js';
import { useList, useLoad, useRepeat } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, useQuery } from '../router.js';
import { isOperator, linkTo, session } from '../session.js';
import { paths } from '../paths.js';
import { isAuditEntry, Sentence } from './audit/words.js';
import { Deliveries } from './event/deliveries.js';
import { Summary } from './event/summary.js';

export function Event({ id }) {
  const path = `/events/${encodeURIComponent(id)}/`;
  const { data: event, error, reload } = useLoad(async (signal) => {
    const found = await api.get(path, { signal });
    return { ...found, isAudit: isAuditEntry(found) };
  }, [path]);
  const beat = event ? beatOf(event) : 0;
  useRepeat(reload, beat, [path]);
  const reasons = useList(path + 'explain/', {}, { poll: beat, limit: 200, id: (r) => r.subscription_id });
  const changed = async () => { await Promise.all([reload(), reasons.reload()]); };

  // The last change of a delivery ends the polling, so the reasons load once more after each change.
  const states = JSON.stringify(event?.deliveries);
  const before = useRef(states);
  useEffect(() => {
    if (before.current && before.current !== states) reasons.reload();
    before.current = states;
  }, [states]);

  if (!event) {
    return html`<${Page} title="Event" crumbs=${crumbs()}>
      <${Loading} error=${error} title="This event cannot be shown" retry=${reload} /><//>`;
  }
  return html`<${Page} title=${event.type} crumbs=${crumbs()}>
    ${error && html`<${ErrorBar} error=${error} />`}
    <${Summary} event=${event} reasons=${reasons} />
    <${About} event=${event} />
    <div class="columns beside">
      <div class="stack"><${Deliveries} event=${event} reasons=${reasons} isLive=${beat > 0} onChanged=${changed} /></div>
      <${Body} event=${event} />
    </div>
  <//>`;
}

const crumbs = () => [['Events', href(paths.events)]];

// beatOf is the time between two loads while a delivery is on its way: a second in the first minute, then longer.
function beatOf({ deliveries, timestamp }) {
  if (!deliveries.some((d) => d.state === 'pending')) return 0;
  const next = Math.min(...deliveries.filter((d) => d.next_attempt_at).map((d) => new Date(d.next_attempt_at) - Date.now()));
  return Date.now() - new Date(timestamp) < 60_000 || next < 3000 ? 1000 : 5000;
}

function About({ event }) {
  const { organization } = session.get().me;
  const entry = event.isAudit && { ...event.data, type: event.type };
  return html`<${Facts} across items=${[
    ['Id', html`<${Id} value=${event.id} />`],
    ['Published', html`<${TimeAndAge} value=${event.timestamp} />`],
    entry && ['Audit log', html`<a href=${linkTo(paths.audit, 'audit:read', { type: event.type, target: entry.target.id })}>
      <${Sentence} entry=${entry} /></a>`],
    event.test && ['Kind', 'A test of one subscription. Tests are not repeated.'],
    event.idempotency_key !== null && ['Idempotency key', html`<${Id} value=${event.idempotency_key} />`],
    isOperator() && ['Organization', html`<a href=${href(paths.organization(event.organization_id), { org: '' })}>
      ${organization.id === event.organization_id ? organization.name : event.organization_id}</a>`],
  ]} />`;
}

function Body({ event: { body } }) {
  const [query] = useQuery();
  const isExact = query.body === 'exact';
  const bytes = new TextEncoder().encode(body).length;
  return html`<${Section} title="Body" actions=${html`<span class="quiet small">${number(bytes)} bytes</span>`}>
    <${Tabs} name="body" label="Form of the body" items=${[['readable', 'Readable'], ['exact', 'Exact bytes']]} />
    <${Code} label=${isExact ? 'The exact body' : 'The body'} text=${body} pretty=${!isExact} />
    <p class="quiet small">Each subscription gets this body. The signature covers these exact bytes. Copying gives the exact bytes.</p>
  <//>`;
}
