// A complete receiver in three languages, beside the secret with which it verifies deliveries.
import { html, useState } from '../../ui/html.js';
import { Code } from '../../ui/code.js';
import { Copy } from '../../ui/copy.js';
import { Loading } from '../../ui/state.js';
import { useLoad } from '../../ui/hooks.js';
import { readDocument } from '../../api.js';
import { settings } from '../../settings.js';

const languages = [['go', 'Go', 'receiver.go', 'go run'], ['js', 'Node', 'receiver.mjs', 'node'], ['python', 'Python', 'receiver.py', 'python3']];

// Programs are those of the document "Receive webhooks", which tests run.
export function Programs() {
  const [chosen, setChosen] = useState(languages[0]);
  const { data, error, reload } = useLoad((signal) => readDocument('receiving', signal), []);
  const [language, name, file, command] = chosen;
  const text = data?.querySelector(`code.language-${language}`).textContent
    .replace(/x-service-/gi, (found) => `${found[0] === 'x' ? settings.prefix.toLowerCase() : settings.prefix}-`);
  return html`<div class="stack tight">
    <div class="row spread"><div class="periods" role="group" aria-label="Language">
      ${languages.map((each) => html`<button key=${each[0]} type="button" class="period"
      aria-pressed=${each === chosen} onClick=${() => setChosen(each)}>${each[1]}</button>`)}</div>${text && html`<${Copy} text=${text}>Copy<//>`}</div>
    <p class="quiet">A complete receiver. Save it as <code>${file}</code>,
      set <code>WEBHOOK_SECRET</code> and <code>PORT</code>, then run <code>${command} ${file}</code>.
      ${' '}<a href=${settings.base + '/docs/receiving/'} target="_blank" rel="noreferrer">The rules</a></p>
    ${text ? html`<${Code} short label=${`Receiver in ${name}`} copy=${false} text=${text} />`
      : html`<${Loading} error=${error} retry=${reload} rows=${6} />`}
  </div>`;
}
