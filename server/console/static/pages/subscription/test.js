// The dialog that sends a test: the example of a type of the catalogue, or the event webhook_test.
import { html } from '../../ui/html.js';
import { Dialog } from '../../ui/dialog.js';
import { Form, SelectField, useForm } from '../../ui/form.js';
import { Code } from '../../ui/code.js';

// usual is the type of a test without an example.
const usual = 'webhook_test';

// bodyOf is the body of a request that sends a test of a type.
export const bodyOf = (type = usual) => (type === usual ? {} : { event_type: type });

export const wants = ({ event_types: list }, type) => !list.length
  || list.some((each) => each === type || (each.endsWith('*') && type.startsWith(each.slice(0, -1))));

// SendTest offers the types with an example. The first that the subscription wants is chosen.
export function SendTest({ subscription, types, send, onClose }) {
  const form = useForm({ event_type: (types.find((t) => wants(subscription, t.type)) ?? types[0])?.type ?? usual }, async ({ event_type: type }) => {
    await send(type);
    onClose();
  });
  const chosen = types.find((t) => t.type === form.values.event_type);
  return html`<${Dialog} title="Send a test" onClose=${onClose}><${Form} form=${form} submit="Send test">
    <${SelectField} form=${form} name="event_type" label="Event type" options=${[usual, ...types.map((t) => t.type)].map((type) => [type, type])}
      hint=${chosen ? chosen.description : 'An event that only says that it is a test.'} />
    ${chosen && html`<${Code} short label="Example" copy=${false} text=${JSON.stringify(chosen.example, null, 2)} />`}
    <p class="quiet">The body has <code>"test": true</code>. A test is sent once, and does not count for the health.</p>
  <//><//>`;
}
