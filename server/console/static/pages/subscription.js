// One subscription: its health with what to do, its attempts, and its settings.
import { html, cx, useState } from '../ui/html.js';
import { Page, Facts } from '../ui/page.js';
import { Badge, Tags, subscriptionStatus } from '../ui/badge.js';
import { Button } from '../ui/button.js';
import { Bar, ErrorBar, Loading } from '../ui/state.js';
import { Menu } from '../ui/menu.js';
import { Tabs } from '../ui/filters.js';
import { tell } from '../ui/told.js';
import { Id } from '../ui/copy.js';
import { Time, number } from '../ui/time.js';
import { useLoad, usePoll } from '../ui/hooks.js';
import { api } from '../api.js';
import { href, navigate, place, useQuery } from '../router.js';
import { can, linkTo } from '../session.js';
import { paths } from '../paths.js';
import { Activity } from './subscription/activity.js';
import { Settings } from './subscription/settings.js';
import { Health, useProof } from './subscription/health.js';
import { Recover } from './subscription/recover.js';
import { Replay } from './subscription/replay.js';
import { Resume, Discard, Delete } from './subscription/dialogs.js';
import { Rotate } from './subscription/rotate.js';
import { facts } from './subscription/traits.js';
import { SendTest, bodyOf } from './subscription/test.js';
import { useEventTypes } from './subscription/fields.js';

const dialogs = { test: SendTest, recover: Recover, replay: Replay, resume: Resume, discard: Discard, delete: Delete, rotate: Rotate };

export function Subscription({ id }) {
  const [query] = useQuery();
  const path = `/webhooks/subscriptions/${encodeURIComponent(id)}/`;
  const { data: subscription, error, reload } = usePoll((signal) => api.get(path, { signal }), [path], 5000);
  const [dialog, setDialog] = useState(null);
  const [refused, setRefused] = useState(null); // the error of an action in the head
  const types = useEventTypes().filter((t) => t.example);
  const [sent, setSent] = useState(0); // grows when something was sent, so that the list of attempts loads again
  const proof = useProof(subscription, sent);

  if (error?.status === 404) return html`<${Deleted} id=${id} error=${error} />`;
  if (!subscription) {
    return html`<${Page} title="Subscription" crumbs=${crumbs()}>
      <${Loading} error=${error} title="This subscription cannot be shown" retry=${reload} /><//>`;
  }
  const changed = () => { setSent((n) => n + 1); return reload(); };
  const actions = {
    open: setDialog,
    test: async (type) => {
      const attempt = await api.post(path + 'test/', bodyOf(type));
      changed();
      navigate(place.get().path, { attempt: attempt.id });
    },
    pause: async () => {
      await api.patch(path, { is_active: false });
      await changed();
      tell('Paused. New events wait until the subscription is resumed.');
    },
    resume: async () => {
      if (subscription.pending_deliveries > 0) return setDialog('resume');
      await api.patch(path, { is_active: true });
      await changed();
      return tell('Resumed. What is published from now on is sent.');
    },
  };
  const Open = dialogs[dialog];
  const open = Boolean(query.attempt) && query.tab !== 'settings';
  return html`<${Page} title=${titleOf(subscription)} crumbs=${crumbs()} aside=${html`<${Badge} status=${subscriptionStatus(subscription)} />`}
    actions=${can('webhooks:write') && html`<${Actions} ...${{ subscription, proof, actions, types, setRefused }} />`}>
    <${ErrorBar} error=${refused} />
    <div class=${open ? 'stack gap detail-open' : 'stack gap'}>
      <div class="stack list-only">
        <${Health} ...${{ subscription, proof, actions }} />
        <${About} subscription=${subscription} />
      </div>
      <${Tabs} label="Parts of the subscription" items=${[['attempts', 'Attempts'], ['settings', 'Settings']]} />
      ${query.tab === 'settings' ? html`<${Settings} key=${subscription.id} subscription=${subscription} onSaved=${changed} />`
        : html`<${Activity} subscription=${subscription} sent=${sent} actions=${actions} changed=${changed} />`}
    </div>
    ${Open && html`<${Open} ...${{ subscription, types }} send=${actions.test} onDone=${changed} onClose=${() => setDialog(null)} />`}
  <//>`;
}

// Deleted shows what was sent to a subscription that exists no more. error says that there is none, for an id that never was.
function Deleted({ id, error }) {
  const [query] = useQuery();
  const path = `/webhooks/subscriptions/${encodeURIComponent(id)}/deliveries/`;
  const { data, loading } = useLoad((signal) => api.get(path, { signal, query: { limit: 1 } }), [path]);
  if (!data) {
    return html`<${Page} title="Subscription" crumbs=${crumbs()}>
      <${Loading} error=${loading ? null : error} title="This subscription cannot be shown" /><//>`;
  }
  return html`<${Page} title="Deleted subscription" crumbs=${crumbs()}>
    <div class=${query.attempt ? 'stack gap detail-open' : 'stack gap'}>
      <div class="stack list-only">
        <${Bar} title="This subscription was deleted: nothing is sent"><p>What was sent to it is kept for a limited time.</p><//>
        <${Facts} across items=${[['Id', html`<${Id} value=${id} />`]]} />
      </div>
      <${Activity} subscription=${{ id, isDeleted: true }} />
    </div>
  <//>`;
}

const crumbs = () => [['Subscriptions', href(paths.subscriptions)]];

// titleOf tells subscriptions of one host apart, if the path is short.
function titleOf({ url, external_id: name }) {
  if (!url) return name ? `Feed ${name}` : 'Feed';
  const { host, pathname } = new URL(url);
  return pathname !== '/' && pathname.length <= 40 ? host + pathname : host;
}

function Actions({ subscription, proof, actions, types, setRefused }) {
  const { url, is_active, pending_deliveries } = subscription;
  const first = !proof && ['failing', 'disabled'].includes(subscriptionStatus(subscription)); // before a recovery
  return html`
    ${url && html`<${Button} icon="send" kind=${first && 'primary'} onClick=${() => (types.length ? actions.open('test') : actions.test())}
      onError=${setRefused}>Send test${types.length > 0 && '…'}<//>`}
    ${is_active && html`<${Button} onClick=${actions.pause} onError=${setRefused}>Pause<//>`}
    <${Menu} items=${[
      { text: 'Edit settings', href: href(place.get().path, { tab: 'settings' }) },
      { text: 'Rotate secret…', onClick: () => actions.open('rotate') },
      ...(url ? [
        { text: 'Replay missed events…', onClick: () => actions.open('replay') },
        { text: 'Recover after an outage…', onClick: () => actions.open('recover') },
        { text: 'Discard waiting deliveries…', danger: true, disabled: pending_deliveries === 0, onClick: () => actions.open('discard') },
      ] : []),
      { text: 'Delete subscription…', danger: true, onClick: () => actions.open('delete') },
    ]} />`;
}

const About = ({ subscription: s }) => html`
  ${s.description && html`<${Description} text=${s.description} />`}
  <${Facts} across items=${[
    s.url ? ['Address', html`<${Id} value=${s.url} />`] : ['Feed', 'Nothing is sent: a program reads the events'],
    ['Id', html`<${Id} value=${s.id} />`],
    ['Event types', html`<${Tags} values=${s.event_types} most=${4} none="All" wrap />`],
    ...facts(s),
    ['Waiting', html`<a href=${linkTo(paths.events, 'events:read', { state: 'pending', subscription: s.id })}>${number(s.pending_deliveries)}</a>`],
    ['Last delivered', html`<${Time} value=${s.last_success_at} none="Never" />`],
  ]} />`;

// Description shows two lines of a long text, and the rest when asked.
function Description({ text }) {
  const [all, setAll] = useState(false);
  const isLong = text.length > 200 || text.split('\n').length > 2;
  return html`<div><p class=${cx('lines', isLong && !all && 'clamp')}><bdi>${text}</bdi></p>
    ${isLong && html`<button type="button" class="plain link accent" onClick=${() => setAll(!all)}>${all ? 'Show less' : 'Show all'}</button>`}</div>`;
}
