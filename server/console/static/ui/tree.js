// JSON with colours, whose objects and lists fold. Numbers keep their digits, because the text is coloured and not the value.
import { html, useState } from './html.js';

const most = 5000; // lines; more would make the page slow
const long = 20; // items of an object or a list that is folded at first

// blocksOf nests the lines of an indented text: a line that opens an object or a list has those up to its end, the last of them
// with the bracket. It returns null for a text that is no object and no list, or is too long.
export function blocksOf(pretty) {
  const lines = pretty.split('\n');
  if (lines.length > most || !/^[[{]$/.test(lines[0])) return null;
  let at = 0;
  const block = () => {
    const open = lines[at++].trim(), items = [];
    while (!/^ *[}\]],?$/.test(lines[at])) items.push(/[[{]$/.test(lines[at]) ? block() : { text: lines[at++].trim() });
    return { text: open, items, end: lines[at++].trim() };
  };
  return block();
}

// Block renders what is inside when it is open. The root is open at first.
export function Block({ block: { text, items, end }, isRoot }) {
  const [isOpen, setOpen] = useState(isRoot || items.length <= long);
  return html`<details class="tree" open=${isOpen} onToggle=${(e) => setOpen(e.currentTarget.open)}>
    <summary><${Coloured} text=${text} />${!isOpen && html`<span class="quiet"> ${items.length} … </span><span>${end}</span>`}</summary>
    ${isOpen && html`<div class="tree-items">${items.map((item, i) => (item.items ? html`<${Block} key=${i} block=${item} />`
      : html`<div key=${i}><${Coloured} text=${item.text} /></div>`))}</div><div>${end}</div>`}
  </details>`;
}

// A name with its colon, a text, a number or a word.
const token = /("(?:[^"\\]|\\.)*": |"(?:[^"\\]|\\.)*"|[-\w.+]+)/;

const kindOf = (part) => (part.endsWith('": ') ? 'tree-name' : part[0] === '"' ? 'tree-text' : 'tree-value');

const Coloured = ({ text }) => text.split(token).map((part, i) => (i % 2 ? html`<bdi key=${i} class=${kindOf(part)}>${part}</bdi>` : part));
