// Rotate the signing secret: the overlap, then the new secret once.
import { html, useState } from '../../ui/html.js';
import { Dialog } from '../../ui/dialog.js';
import { Form, SelectField, TextField, useForm } from '../../ui/form.js';
import { Bar } from '../../ui/state.js';
import { Secret } from '../../ui/secret.js';
import { tell } from '../../ui/told.js';
import { api } from '../../api.js';

const overlaps = [['86400', '1 day'], ['0', 'None: the old secret ends now'], ['3600', '1 hour'], ['604800', '7 days']];

export function Rotate({ subscription, onDone, onClose }) {
  const [secret, setSecret] = useState('');
  const [isOverlap, setIsOverlap] = useState(false); // of the rotation before
  const form = useForm({ overlap_seconds: '86400', secret: '', word: '' }, async (values) => {
    try {
      const rotated = await api.post(`/webhooks/subscriptions/${subscription.id}/rotate-secret/`, {
        overlap_seconds: Number(values.overlap_seconds), ...(values.secret && { secret: values.secret.trim() }), ...(isOverlap && { force: true }),
      });
      setSecret(rotated.secret);
    } catch (error) {
      if (error.code !== 'overlap_in_progress') throw error;
      setIsOverlap(true);
    }
  });
  const { overlap_seconds, word } = form.values;
  const done = () => {
    onDone();
    onClose();
    tell('The signing secret was rotated.');
  };

  if (secret) {
    return html`<${Dialog} title="The secret was rotated" fixed>
      <${Secret} title="New signing secret" value=${secret} onDone=${done}>
        <p>${overlap_seconds === '0' ? 'The old secret signs nothing any more.'
          : `The old secret also signs for ${overlaps.find(([v]) => v === overlap_seconds)[1]}. Give the new one to the receiver in this time.`}</p><//><//>`;
  }
  return html`<${Dialog} title="Rotate the signing secret" onClose=${onClose}>
    <p>A new secret is made. During the overlap, the old one also signs, so that the receiver can change without a failure.</p>
    <${Form} form=${form} submit=${isOverlap ? 'End the overlap and rotate' : 'Rotate secret'}
      kind=${isOverlap ? 'danger' : 'primary'} disabled=${isOverlap && word !== 'rotate'}>
      <${SelectField} form=${form} name="overlap_seconds" label="Overlap" options=${overlaps} />
      <details class="more-options"><summary>Use a secret of your own</summary>
        <${TextField} form=${form} name="secret" label="Secret" mono optional hint="24 to 256 characters, such as whsec_ and base64." /></details>
      ${isOverlap && html`<${Bar} tone="warning" title="The overlap of the last rotation has not ended">
        <p>The older secret still signs. If you rotate now, it ends, and a receiver that uses it refuses deliveries.</p>
        <${TextField} form=${form} name="word" label="Type “rotate” to end the overlap" mono /><//>`}
    <//>
  <//>`;
}
