// A secret that is shown once: a raw key, a signing secret. One leaves the panel by saying so.
import { html, cx, useEffect, useRef, useState } from './html.js';
import { Icon } from './icon.js';
import { Copy } from './copy.js';
import { confirmLeave } from '../router.js';

// Secret shows value. onDone is called when the user has saved it; children explain how to use it.
export function Secret({ title, value, onDone, children }) {
  const [hint, setHint] = useState(false);
  const [copied, setCopied] = useState(false); // then the main button is the other one
  const free = useRef(() => {});
  useEffect(() => {
    free.current = confirmLeave(() => true, () => setHint(true));
    return () => free.current();
  }, []);
  return html`<section class="secret stack tight" aria-label=${title}>
    <div class="row"><${Icon} name="keys" class="success" /><h2>${title}</h2></div>
    <p>This is the only time that it is shown. Keep it where your other secrets are.</p>
    <div class="secret-value"><code>${value}</code>
      <${Copy} text=${value} label="Copy the secret" kind=${!copied && 'primary'} onCopied=${() => setCopied(true)}>Copy<//></div>
    ${children}
    <div class="row">
      <button type="button" class=${cx('button', copied && 'primary')} onClick=${() => { free.current(); onDone(); }}>I have saved it</button>
      ${hint && html`<span class="warning" role="alert">Save it first: it cannot be shown again.</span>`}
    </div>
  </section>`;
}
