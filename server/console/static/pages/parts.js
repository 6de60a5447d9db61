// Every component in every state, with long and foreign text: for developers of the console. Only a server with --dev has the page.
import { html, useState } from '../ui/html.js';
import { Page, Section, Facts } from '../ui/page.js';
import { Address, Badge, Count, Tag, Tags, TwoLines } from '../ui/badge.js';
import { Button, LinkButton } from '../ui/button.js';
import { Chart } from '../ui/chart.js';
import { Code, Headers } from '../ui/code.js';
import { Copy, Id } from '../ui/copy.js';
import { Curl } from '../ui/curl.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Choice, Filters, NoneLike, Range, Segments, Tabs, TextFilter } from '../ui/filters.js';
import { AreaField, CheckField, CheckGroup, Form, SelectField, TextField, TimeField, useForm } from '../ui/form.js';
import { Icon } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { ObjectField } from '../ui/object_field.js';
import { Pairs } from '../ui/pairs.js';
import { Secret } from '../ui/secret.js';
import { Bar, Empty, ErrorBar, Skeleton } from '../ui/state.js';
import { Table } from '../ui/table.js';
import { Countdown, Time, TimeAndAge, bytes, duration, number } from '../ui/time.js';
import { TokensField } from '../ui/tokens.js';
import { tell } from '../ui/told.js';
import { ApiError } from '../api.js';
import { href } from '../router.js';

const long = 'A very long name without an end, as somebody types it who has much to say about a thing, and then some more of it';
const word = 'Donaudampfschifffahrtsgesellschaftskapitaenswitwenrentenauszahlungsstelle'.repeat(3);
const foreign = ['مرحبا بالعالم — ABC 123', 'שלום עולם', '注文が支払われました', 'Đơn hàng đã được thanh toán', '\u202etxet desrever\u202c'];
const url = `https://example.com:8443/${'a-long-path/'.repeat(9)}?and=a&query=too`;
const statuses = ['healthy', 'failing', 'disabled', 'paused', 'plan', 'queue_held', 'sending', 'succeeded', 'delivered', 'failed',
  'exhausted', 'interrupted', 'pending', 'discarded', 'active', 'revoked', 'expired', 'a status of a later version'];
const icons = ['brand', 'ok', 'warn', 'bad', 'pause', 'send', 'clock', 'lock', 'keys', 'plus', 'cross', 'info'];
const types = [
  { type: 'order.created', group: 'Orders', description: 'A customer placed an order.', example: { number: 1001, total: '19.90' } },
  { type: 'order.paid', group: 'Orders', description: long },
  { type: 'invoice.created', group: 'Invoices', description: foreign[2] },
];
const refused = new ApiError({
  code: 'validation_failed', detail: 'One or more fields are invalid.', request_id: 'QWVR5JBM6KCWC5SLGYAIXL63HB',
  errors: [{ field: 'name', message: `The name is taken. ${long}` }, { field: 'unknown', message: `${foreign[0]} ${word}` }],
});
const wait = (ms) => new Promise((done) => { setTimeout(done, ms); });
const fail = async () => { await wait(500); throw refused; };
const at = (minutes) => new Date(Date.now() + minutes * 60_000).toISOString();

const names = [['Short', 'healthy'], [long, 'failing'], [word, 'disabled'], ...foreign.map((text) => [text, 'paused'])];
const rows = names.map(([name, status], i) => ({ id: `sub_${i}`, name, status, waiting: 10 ** i, at: at(-(8 ** i)) }));
const columns = [
  { head: 'Name', main: true, cell: (row) => html`<${TwoLines} title=${row.name}><${Address} url=${url} /><//>` },
  { head: 'Status', size: 'm', cell: (row) => html`<${Badge} status=${row.status} />` },
  { head: 'Waiting', size: 's', number: true, cell: (row) => number(row.waiting) },
  { head: 'Last event', size: 'm', wide: true, cell: (row) => html`<${Time} value=${row.at} />` },
];
const list = { rows, reload: () => {}, loadMore: () => wait(500) };

function stats(count, succeeded, failed, step = 3600) {
  const data = Array.from({ length: count }, (_, i) => {
    const sum = { succeeded: Math.round(succeeded * (1 + Math.sin(i / 3))), failed: i % 7 === 0 ? failed : 0 };
    return { ...sum, at: at((i - count) * step / 60), duration_ms: sum.succeeded ? { p50: 40, p95: 90 + 30 * (i % 5), p99: 900 } : null };
  });
  const totals = { succeeded: 0, failed: 0, duration_ms: count ? { p50: 40, p95: 210, p99: 900 } : null };
  data.forEach((each) => { totals.succeeded += each.succeeded; totals.failed += each.failed; });
  return { data, totals, step, since: at(-count * step / 60), until: at(0) };
}

const Part = ({ title, children }) => html`<${Section} title=${title}><div class="stack">${children}</div><//>`;
const Row = ({ children }) => html`<div class="row">${children}</div>`;

function Buttons() {
  const kinds = [undefined, 'primary', 'danger'];
  return html`<${Part} title="Buttons">
    ${kinds.map((kind) => html`<${Row} key=${kind}>
      <${Button} kind=${kind} onClick=${() => wait(1000)}>Takes a second<//>
      <${Button} kind=${kind} icon="plus" onClick=${fail} onError=${() => {}}>Fails<//>
      <${Button} kind=${kind} disabled title="Why it does nothing">Does nothing<//>
      <${LinkButton} kind=${kind} href=${href('/parts/')}>A link<//>
    <//>`)}
    <${Row}><${Button}>Recover ${number(1234567)} events now<//><${Button}>${foreign[0]}<//><//>
    <${Row}><${Copy} text="copied" label="Copy the text">Copy<//><${Id} value="sub_01h455vb4pex5vsknk084sn02q" /><${Menu} items=${[
      { text: 'An act', icon: 'send', onClick: () => {} }, { text: 'A link', href: href('/parts/') }, { text: long, onClick: () => {} },
      { text: 'Not now', disabled: true, title: 'Why not' }, { text: 'Delete…', danger: true, onClick: () => {} },
    ]} /><//>
  <//>`;
}

function Words() {
  return html`<${Part} title="Badges, tags and facts">
    <div class="row">${statuses.map((status) => html`<${Badge} key=${status} status=${status} />`)}</div>
    <${Row}><${Tag}>order.paid<//><${Tag}>${word}<//><${Tag}>${foreign[1]}<//><${Count} value=${3} label="need attention" />
      <${Count} value=${1234} label="need attention" /><//>
    <${Tags} values=${types.map((t) => t.type).concat(foreign)} />
    <${Tags} values=${[]} />
    <${Facts} items=${[['Name', long], ['A word', word], ['Foreign', foreign.join(' · ')], ['Address', html`<${Address} url=${url} />`],
      ['Feed', html`<${Address} />`], ['Published', html`<${TimeAndAge} value=${at(-90)} />`], ['Never', html`<${Time} />`],
      ['Ends', html`<${Countdown} value=${at(2)} />`], ['Durations', [3, 1500, 95_000, 7e6].map(duration).join(', ')],
      ['Sizes', [12, 5400, 1.5e9].map(bytes).join(', ')]]} />
    <${Facts} across items=${[['Success rate', '99.2 %'], ['Waiting', number(1234567)], ['Nothing', '–']]} />
  <//>`;
}

function Dialogs() {
  const [open, setOpen] = useState('');
  const close = () => setOpen('');
  const choices = ['A dialog', 'A wide dialog', 'A question', 'What cannot be undone', 'A failure'];
  return html`<${Part} title="Dialogs and messages">
    <${Row}>
      ${choices.map((name) => html`<${Button} key=${name} onClick=${() => setOpen(name)}>${name}…<//>`)}
      <${Button} onClick=${() => tell('Keyhook sends 12 events again.')}>Tell what was done<//>
      <${Button} onClick=${() => tell(`${long} ${foreign[0]}`)}>Tell something long<//>
    <//>
    ${open === choices[0] && html`<${Dialog} title=${long} onClose=${close}><p>${foreign.join(' ')}</p><//>`}
    ${open === choices[1] && html`<${Dialog} title="Wide" wide onClose=${close}><${Code} text=${word.repeat(20)} /><//>`}
    ${open === choices[2] && html`<${Confirm} title="Recover this subscription?" action="Recover 361 events" onConfirm=${() => wait(1000)}
      onClose=${close}>Keyhook sends 361 events again.<//>`}
    ${open === choices[3] && html`<${Confirm} title="Delete this subscription?" action="Delete subscription" typed="api.acme.example" danger
      onConfirm=${() => wait(1000)} onClose=${close}>${long}<//>`}
    ${open === choices[4] && html`<${Confirm} title="This fails" action="Fail" onConfirm=${fail} onClose=${close}>It stays open.<//>`}
  <//>`;
}

function Fields() {
  const form = useForm({
    name: '', long, area: foreign.join('\n'), choice: 'b', until: at(60), yes: true, some: ['a'],
    types: ['order.paid', word.slice(0, 60)], object: '{"a": 1,, }',
  }, fail);
  const [pairs, setPairs] = useState([{ name: 'X-Request-Source', value: long }, { name: '', value: '' }]);
  return html`<${Part} title="A form, which is refused">
    <${Form} form=${form} submit="Save" free>
      <${TextField} form=${form} name="name" label="Name" hint="So that you recognize it." optional />
      <${TextField} form=${form} name="long" label=${long} hint=${long} mono />
      <${AreaField} form=${form} name="area" label="Several lines" />
      <${SelectField} form=${form} name="choice" label="A choice" options=${[['a', 'Short'], ['b', long], ['c', foreign[0]]]} />
      <${TimeField} form=${form} name="until" label="A time" />
      <${CheckField} form=${form} name="yes" label="Yes or no" hint=${long} />
      <${CheckGroup} form=${form} name="some" label="Some of many"
        options=${[['a', 'The first', 'With a hint'], ['b', long], ['c', foreign[1]]]} />
      <${TokensField} form=${form} name="types" label="Event types" hint="Type a word to choose from the catalogue." types=${types} />
      <${ObjectField} form=${form} name="object" label="A JSON object with a mistake" rows=${4} />
    <//>
    <${Pairs} rows=${pairs} set=${setPairs} of="of header " add="Add a header" examples=${() => ['X-Name', 'value']} />
  <//>`;
}

function States() {
  const [secret, setSecret] = useState(false);
  return html`<${Part} title="Notices, and what is in the place of data">
    ${['info', 'success', 'warning', 'danger'].map((tone) => html`<${Bar} key=${tone} tone=${tone} title=${`A notice: ${tone}`}
      action=${html`<${Button}>Open<//>`}><p>${tone === 'info' ? long : foreign.join(' ')}</p><//>`)}
    <${ErrorBar} error=${refused} title="The list cannot be loaded" retry=${() => {}} />
    <${Empty} title="No subscription yet" text="A subscription sends the events of your choice to an address.">
      <${Button} kind="primary">New subscription<//>
    <//>
    <${NoneLike} title="No event matches the filters" />
    <${Skeleton} rows=${3} />
    ${secret ? html`<${Secret} title="Your new key" value=${`svc_${word.slice(0, 60)}`} onDone=${() => setSecret(false)} />`
      : html`<${Row}><${Button} onClick=${() => setSecret(true)}>Show a secret<//><//>`}
  <//>`;
}

const Tables = () => html`<${Part} title="Lists">
  <${Filters}>
    <${Choice} name="status" label="Status" options=${[['failing', 'Failing'], ['disabled', long]]} />
    <${TextFilter} name="type" label="Type" placeholder="order.*" />
    <${Range} />
  <//>
  <${Tabs} label="Tabs" items=${[['a', 'Activity', 12], ['b', 'Settings'], ['c', foreign[0]]]} />
  <${Segments} name="period" label="Period" value="7d" items=${[['24h', '24 h'], ['7d', '7 d'], ['30d', '30 d']]} />
  <${Table} label="Rows with a next page" list=${{ ...list, arrived: 3, showArrived: () => {}, more: { hasMore: true } }} columns=${columns}
    href=${() => href('/parts/')} selected="sub_1" />
  <${Table} label="Rows that could not be loaded again" list=${{ ...list, rows: rows.slice(0, 1), error: refused }} columns=${columns} />
  <${Table} label="No rows" list=${{ ...list, rows: [] }} columns=${columns} empty=${html`<${Empty} title="No rows" text=${long} />`} />
  <${Table} label="Rows that are loading" list=${{}} columns=${columns} skeleton=${2} />
<//>`;

const Charts = () => html`<${Part} title="Charts">
  <${Chart} label="A week" stats=${stats(84, 40, 9, 7200)} hrefOf=${() => href('/parts/')} />
  <${Chart} label="Large numbers" stats=${stats(24, 1.5e6, 40_000)} />
  <${Chart} label="Nothing" stats=${stats(24, 0, 0)} />
  <${Chart} label="Loading" />
<//>`;

const Texts = () => html`<${Part} title="Texts of others, and commands">
  <${Code} label="JSON" text=${JSON.stringify({ number: 1001, lines: [{ article: long, pieces: 2 }], foreign, word, no: null })} pretty />
  <${Code} label="HTML" text=${'<script>alert("no")</script>\n' + foreign.join('\n')} short />
  <${Code} label="Empty" text="" />
  <${Headers} items=${[['Content-Type', 'application/json'], ['X-Long', word], ['X-Foreign', foreign[0]]]} />
  <${Curl} path="/events/" method="POST" body=${'{"type": "order.paid", "data": {"name": "it\'s"}}'} />
  <${Row}>${icons.map((name) => html`<${Icon} key=${name} name=${name} />`)}<//>
<//>`;

export const Parts = () => html`<${Page} title="Parts" crumbs=${[['Overview', href('/')], [long, href('/')]]}
  aside=${html`<${Badge} status="healthy" />`} actions=${html`<${Button} kind="primary" icon="plus">An act<//>`}>
  <${Buttons} /><${Words} /><${Dialogs} /><${Fields} /><${States} /><${Tables} /><${Charts} /><${Texts} />
<//>`;
