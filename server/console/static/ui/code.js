// Text from events, receivers and users, shown literally: it wraps, and marks for right-to-left text change nothing around it.
import { html } from './html.js';
import { Copy } from './copy.js';
import { readJSON } from './json.js';
import { Block, blocksOf } from './tree.js';

// Code shows a body or a command; short: only some lines of it, which scroll. With pretty, JSON gets line
// breaks and colours, and folds; copying gives the text as it was.
export function Code({ text, label, pretty = false, short = false, copy = true, empty = 'Empty' }) {
  if (!text) return html`<p class="quiet small">${empty}</p>`;
  const shown = visible(pretty && text.length <= 300_000 ? readJSON(text).pretty : text), block = pretty && blocksOf(shown);
  const region = { tabindex: 0, role: 'region', 'aria-label': label ?? 'Text', dir: 'ltr' };
  return html`<div class=${short ? 'code short' : 'code'}>
    ${copy && html`<${Copy} text=${text} label=${label ? `Copy: ${label}` : 'Copy'} />`}
    ${block ? html`<div class="text mono" ...${region}><${Block} block=${block} isRoot /></div>`
      : html`<pre class="text" ...${region}><code>${shown}</code></pre>`}
  </div>`;
}

// Headers shows [[name, value]] as in an HTTP message.
export const Headers = ({ items, label }) => html`<div class="code">
  <dl class="headers" aria-label=${label}>
    ${items.map(([name, value], i) => html`<div key=${i}><dt>${name}:</dt><dd><bdi>${visible(value)}</bdi></dd></div>`)}</dl>
</div>`;

// visible replaces control and direction characters by what they are called, since they would hide or move text.
const hidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) => String(text).replace(hidden, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
