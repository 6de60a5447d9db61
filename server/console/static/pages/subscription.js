// One subscription: its health with what to do, its attempts, and its settings.
import { html, useState } from '../ui/html.js';
import { Page, Facts } from '../ui/page.js';
import { Badge, Tag, subscriptionStatus } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Bar, ErrorBar, Skeleton } from '../ui/state.js';
import { Menu } from '../ui/menu.js';
import { Tabs } from '../ui/filters.js';
import { Id } from '../ui/copy.js';
import { Time, count, number } from '../ui/time.js';
import { usePoll } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate, place, useQuery } from '../router.js';
import { can, isOperator } from '../session.js';
import { paths } from '../paths.js';
import { Activity } from './subscription/activity.js';
import { Settings } from './subscription/settings.js';
import { mendOf } from './subscription/mend.js';
import { Recover } from './subscription/recover.js';
import { Replay } from './subscription/replay.js';
import { Resume, Discard, Delete } from './subscription/dialogs.js';
import { Rotate } from './subscription/rotate.js';

const dialogs = { recover: Recover, replay: Replay, resume: Resume, discard: Discard, delete: Delete, rotate: Rotate };

export function Subscription({ id }) {
  const [query] = useQuery();
  const path = `/webhooks/subscriptions/${encodeURIComponent(id)}/`;
  const { data: subscription, error, reload } = usePoll((signal) => api.get(path, { signal }), [path], 5000);
  const [dialog, setDialog] = useState(null);
  const [refused, setRefused] = useState(null); // the error of an action in the head
  const [sent, setSent] = useState(0); // grows when something was sent, so that the list of attempts loads again

  if (!subscription) {
    return html`<${Page} title="Subscription" crumbs=${crumbs()}>
      ${error ? html`<${ErrorBar} error=${error} title="This subscription cannot be shown" retry=${reload} />` : html`<${Skeleton} />`}<//>`;
  }
  const changed = () => { setSent((n) => n + 1); return reload(); };
  const actions = {
    open: setDialog,
    test: async () => {
      const attempt = await api.post(path + 'test/');
      changed();
      navigate(place.get().path, { attempt: attempt.id });
    },
    pause: async () => { await api.patch(path, { is_active: false }); await changed(); },
    resume: async () => {
      if (subscription.pending_deliveries > 0) return setDialog('resume');
      await api.patch(path, { is_active: true });
      return changed();
    },
  };
  const Open = dialogs[dialog];
  const open = Boolean(query.attempt) && query.tab !== 'settings';
  return html`<${Page} title=${hostOf(subscription)} crumbs=${crumbs()} aside=${html`<${Badge} status=${subscriptionStatus(subscription)} />`}
    actions=${can('webhooks:write') && html`<${Actions} ...${{ subscription, actions, setRefused }} />`}>
    <${ErrorBar} error=${refused} />
    <div class=${open ? 'stack gap detail-open' : 'stack gap'}>
      <div class="stack list-only">
        <${Health} subscription=${subscription} actions=${actions} />
        <${About} subscription=${subscription} />
      </div>
      <${Tabs} label="Parts of the subscription" items=${[['attempts', 'Attempts'], ['settings', 'Settings']]} />
      ${query.tab === 'settings' ? html`<${Settings} key=${subscription.id} subscription=${subscription} onSaved=${changed} />`
        : html`<${Activity} subscription=${subscription} sent=${sent} actions=${actions} changed=${changed} />`}
    </div>
    ${Open && html`<${Open} subscription=${subscription} onDone=${changed} onClose=${() => setDialog(null)} />`}
  <//>`;
}

const crumbs = () => [['Subscriptions', href(paths.subscriptions)]];
const hostOf = ({ url }) => new URL(url).host;

function Actions({ subscription: { is_active, pending_deliveries }, actions, setRefused }) {
  return html`
    <${Button} icon="send" onClick=${actions.test} onError=${setRefused}>Send test<//>
    ${is_active && html`<${Button} onClick=${actions.pause} onError=${setRefused}>Pause<//>`}
    <${Menu} items=${[
      { text: 'Edit settings', href: href(place.get().path, { tab: 'settings' }) },
      { text: 'Rotate secret…', onClick: () => actions.open('rotate') },
      { text: 'Replay missed events…', onClick: () => actions.open('replay') },
      { text: 'Recover after an outage…', onClick: () => actions.open('recover') },
      { text: 'Discard waiting deliveries…', danger: true, disabled: pending_deliveries === 0, onClick: () => actions.open('discard') },
      { text: 'Delete subscription…', danger: true, onClick: () => actions.open('delete') },
    ]} />`;
}

// Health says in words why nothing is sent or what fails, and has the button that mends it.
function Health({ subscription: s, actions }) {
  const waits = s.pending_deliveries > 0 ? `${count(s.pending_deliveries, 'delivery waits', 'deliveries wait')}.` : 'No delivery waits.';
  const writes = can('webhooks:write');
  const recover = writes && html`<${Button} kind="primary" onClick=${() => actions.open('recover')}>Recover…<//>`;
  switch (s.blocked_by) {
    case 'paused':
      return html`<${Bar} title="Paused: nothing is sent" action=${writes && html`<${Button} kind="primary" onClick=${actions.resume}>Resume<//>`}>
        <p><bdi class="sentence">${s.last_error}</bdi>${s.disabled_at && html`, <${Time} value=${s.disabled_at} />`}. ${waits} New events wait, too.</p><//>`;
    case 'disabled':
      return html`<${Bar} tone="danger" title=${`Disabled after ${count(s.consecutive_failures, 'failure')} in a row: nothing is sent`} action=${recover}>
        <${LastError} subscription=${s} /><p>${waits} Repair the receiver, send a test, then recover.</p><//>`;
    case 'plan':
      return html`<${Bar} tone="warning" title="The plan has no webhooks: nothing is sent"><p>${waits} ${isOperator()
        ? html`Change the plan of <a href=${href(paths.organization(s.organization_id), { org: '' })}>the organization</a>.` : 'Ask the operator for a plan that has them.'}</p><//>`;
    case 'queue_held':
      return html`<${Bar} tone="warning" title="An operator holds the queue: nothing is sent"><p>${waits} They are sent when the queue is released. ${
        isOperator() && html`<a href=${href(paths.system, { org: '' })}>Release it on the page System</a>.`}</p><//>`;
    default:
      return s.status === 'failing' && html`<${Bar} tone="warning" title=${`Failing: ${count(s.consecutive_failures, 'failure')} in a row`} action=${recover}>
        <${LastError} subscription=${s} /><p>${waits} Keyhook tries one delivery at a time. If the receiver works again, recover to send everything now.</p><//>`;
  }
}

const LastError = ({ subscription: s }) => html`<p><bdi class="strong">${s.last_error}</bdi>${s.failing_since && html`, failing since <${Time} value=${s.failing_since} />`}.
  ${' '}${mendOf(s.last_error)}</p>`;

const About = ({ subscription: s }) => html`
  ${s.description && html`<p class="lines"><bdi>${s.description}</bdi></p>`}
  <${Facts} across items=${[
    ['Address', html`<${Id} value=${s.url} />`],
    ['Id', html`<${Id} value=${s.id} />`],
    ['Event types', s.event_types.length ? html`<span class="tags wrap">${s.event_types.slice(0, 4).map((t) => html`<${Tag} key=${t}>${t}<//>`)}${
      s.event_types.length > 4 && html`<span class="quiet small">+${s.event_types.length - 4}</span>`}</span>` : 'All'],
    ['Waiting', number(s.pending_deliveries)],
    ['Last delivered', html`<${Time} value=${s.last_success_at} none="Never" />`],
  ]} />`;
