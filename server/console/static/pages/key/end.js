// The dialogs that replace or end an API key.
import { html, useState, useId } from '../../ui/html.js';
import { Confirm } from '../../ui/dialog.js';
import { Bar } from '../../ui/state.js';
import { Time } from '../../ui/time.js';
import { api } from '../../api.js';
import { can, useSession } from '../../session.js';
import { words } from './scope.js';

const graces = [[0, 'At once'], [3600, 'In 1 hour'], [86400, 'In 1 day'], [604800, 'In 7 days']];

export function Rotate({ apiKey: key, onDone, onClose }) {
  const { me, home } = useSession();
  const isElsewhere = me.organization.id !== home.organization.id;
  const [grace, setGrace] = useState(86400);
  const id = useId();
  const lost = words(key.scope).filter((p) => !can(p));
  const isOthers = key.creator.kind === 'person' && key.created_by !== me.user.id;
  const rotate = async () => onDone(await api.post(`/api-keys/${key.id}/rotate/`, { grace_seconds: grace }));
  return html`<${Confirm} title="Rotate this key?" action="Rotate key" onConfirm=${rotate} onClose=${onClose}>
    <p>A new key replaces <code>${key.key_prefix}</code>, with the same name, permissions, expiry and metadata. You see it once.</p>
    <div class="field"><label for=${id}>The old key ends</label>
      <select id=${id} class="input" value=${grace} onChange=${(e) => setGrace(Number(e.target.value))}>
        ${graces.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></div>
    <${LastUse} apiKey=${key} warn=${grace === 0} />
    ${isOthers && html`<p>The old key acts as <bdi>${key.creator.name}</bdi>. The new key acts as ${isElsewhere
      ? 'the service account, or as you if you are a member' : me.user.kind === 'service' ? 'the service account' : 'you'}.</p>`}
    ${lost.length > 0 && html`<${Bar} tone="warning" title="The new key may do less">
      <p>You do not hold ${lost.map((p) => html`<code key=${p}>${p}</code> `)}</p><//>`}
  <//>`;
}

export function Revoke({ apiKey: key, onDone, onClose }) {
  const revoke = async () => {
    await api.delete(`/api-keys/${key.id}/`);
    await onDone();
    return `Revoked the key ${key.name}.`;
  };
  return html`<${Confirm} title="Revoke this key?" action="Revoke key" danger typed=${key.key_prefix.slice(0, -1)} onConfirm=${revoke} onClose=${onClose}>
    <p>From the next request on, <strong class="strong"><bdi>${key.name}</bdi></strong> is refused with 401. This cannot be undone.</p>
    <${LastUse} apiKey=${key} warn />
  <//>`;
}

// LastUse warns about a key that something uses: it will fail.
function LastUse({ apiKey: { last_used_at: at }, warn }) {
  if (!at) return html`<p>The key was never used.</p>`;
  const isRecent = Date.now() - Date.parse(at) < 6048e5;
  if (!warn || !isRecent) return html`<p>It was last used <${Time} value=${at} />.</p>`;
  return html`<${Bar} tone="warning"><p>It was last used <${Time} value=${at} />. What uses it will fail.</p><//>`;
}
