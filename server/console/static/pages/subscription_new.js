// New subscription: the form, then on the same page the secret, how to verify, and a test delivery with its answer.
import { html, useState } from '../ui/html.js';
import { Page, Section, Facts } from '../ui/page.js';
import { Form, useForm } from '../ui/form.js';
import { Badge } from '../ui/badge.js';
import { Button, LinkButton } from '../ui/button.js';
import { Bar, ErrorBar } from '../ui/state.js';
import { Code } from '../ui/code.js';
import { quoted } from '../ui/curl.js';
import { Secret } from '../ui/secret.js';
import { duration } from '../ui/time.js';
import { api } from '../api.js';
import { href, place } from '../router.js';
import { settings } from '../settings.js';
import { paths } from '../paths.js';
import { session, useSession } from '../session.js';
import { NoWebhooks } from './subscription/health.js';
import { Destination, Options, bodyOf, empty, useEventTypes } from './subscription/fields.js';
import { Example } from './subscription/example.js';
import { Programs } from './subscription/programs.js';
import { SendTest, bodyOf as bodyOfTest } from './subscription/test.js';
import { Response } from './subscription/attempt.js';

export function SubscriptionNew() {
  const types = useEventTypes();
  const [made, setMade] = useState(null);
  const form = useForm({ ...empty, url: place.get().query.url ?? '' }, async (values) => setMade(await api.post('/webhooks/subscriptions/', bodyOf(values))));
  if (made) return html`<${Made} subscription=${made} />`;
  const { plan } = useSession().me;
  const folded = Object.keys(form.error?.fields ?? {}).some((name) => /^(filter|ordered|rate_limit|headers|external_id|secret)/.test(name));
  if (!plan.webhooks) return html`<${Page} title="New subscription" crumbs=${crumbs()}><${NoWebhooks} /><//>`;
  return html`<${Page} title="New subscription" crumbs=${crumbs()}>
    <div class="previewed"><${Form} form=${form} submit="Create subscription" cancel=${href(paths.subscriptions)}>
      <${Destination} form=${form} types=${types} isNew />
      <details class="more-options" open=${folded || undefined}><summary>More options</summary><div><${Options} form=${form} isNew /></div></details>
      ${!form.values.is_feed && html`<${Example} types=${types} chosen=${form.values.event_types} headers=${form.values.headers} />`}
    <//></div>
  <//>`;
}

const crumbs = () => [['Subscriptions', href(paths.subscriptions)]];

// Made is what follows: three steps on one page.
function Made({ subscription }) {
  const [saved, setSaved] = useState(false);
  const page = href(paths.subscription(subscription.id)), feed = `${location.origin}${settings.base}/api/v1/webhooks/subscriptions/${subscription.id}/feed/`;
  const { host, pathname } = new URL(subscription.url ?? location);
  return html`<${Page} title=${`${subscription.url ? host + (pathname === '/' ? '' : pathname) : 'The feed'} was created`} crumbs=${crumbs()}
    actions=${saved && html`<${LinkButton} href=${page} kind="primary">Open subscription<//>`}>
    ${saved ? html`<${Bar} tone="success" title="You have saved the signing secret"><p>If it is lost, rotate it.</p><//>`
      : html`<${Secret} title="1. Save the signing secret" value=${subscription.secret} onDone=${() => setSaved(true)} />`}
    ${subscription.url ? html`<${Section} title="2. Verify deliveries"><${Programs} /><//>
      <${Section} title="3. Send a test"><${Test} subscription=${subscription} /><//>`
      : html`<${Section} title="2. Read the events">
        <${Code} text=${session.get().portal ? `curl -H "Authorization: ApiKey $KEY" ${quoted(`${feed}?wait=30`)}`
          : `keyhook listen --from ${location.origin}${settings.base} --subscription ${subscription.id}`} /><//>`}
  <//>`;
}

function Test({ subscription }) {
  const types = useEventTypes().filter((t) => t.example);
  const [asking, setAsking] = useState(false);
  const [attempt, setAttempt] = useState(null);
  const [error, setError] = useState(null);
  const send = async (type) => {
    setAttempt(null);
    setAttempt(await api.post(`/webhooks/subscriptions/${subscription.id}/test/`, bodyOfTest(type)));
  };
  return html`<div class="stack">
    <p class="quiet">This sends an event to <bdi class="strong">${subscription.url}</bdi> now, and shows the answer.</p>
    <div class="row"><${Button} icon="send" onClick=${() => (types.length ? setAsking(true) : send())} onError=${setError}>
      ${attempt ? 'Send test again' : 'Send test'}${types.length > 0 && '…'}<//></div>
    ${asking && html`<${SendTest} ...${{ subscription, types, send }} onClose=${() => setAsking(false)} />`}
    <${ErrorBar} error=${error} />
    ${attempt && html`<div class="card stack" role="status">
      <${Facts} across items=${[
        ['Result', html`<${Badge} status=${attempt.outcome} />`], ['Duration', duration(attempt.duration_ms)],
      ]} />
      <${Response} attempt=${attempt} /></div>`}
  </div>`;
}
