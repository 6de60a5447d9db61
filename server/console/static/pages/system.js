// The system: the process, its database, what is wrong with it, the queue, and backups.
import { html, useState } from '../ui/html.js';
import { Page, Facts, Section } from '../ui/page.js';
import { Badge } from '../ui/badge.js';
import { Copy } from '../ui/copy.js';
import { Button } from '../ui/button.js';
import { Confirm, Dialog } from '../ui/dialog.js';
import { Bar, Loading } from '../ui/state.js';
import { Time, WithTimes, bytes, count, duration, number } from '../ui/time.js';
import { usePoll } from '../ui/hooks.js';
import { api, readiness } from '../api.js';
import { settings } from '../settings.js';
import { can } from '../session.js';
import { Queue } from './queue.js';

export function System() {
  const { data, error, reload } = usePoll(async (signal) => {
    const [system, queue, ready] = await Promise.all([api.get('/system/', { signal }), api.get('/queue/', { signal }), readiness(signal)]);
    return { system, queue, ready };
  }, [], 5000);
  return html`<${Page} title="System" actions=${data && can('platform:write') && html`<${Backup} />`}>
    ${(error || !data) && html`<${Loading} error=${error} retry=${reload} />`}
    ${data && html`
      <${Checks} ready=${data.ready} held=${data.queue.held} reload=${reload} />
      <${Queue} queue=${data.queue} reload=${reload} />
      <div class="columns two"><${Process} system=${data.system} /><${Database} database=${data.system.database} /></div>
      <${Interfaces} />`}
  <//>`;
}

const names = {
  clock: 'Clock', database: 'Database', deliveries: 'Deliveries', process: 'Process', scheduler: 'Scheduler', storage: 'Storage', certificate: 'Certificate',
};

// Checks shows what /readyz/ says: all in one line, and each problem with its text. The queue says itself that it is held.
function Checks({ ready, held, reload }) {
  const all = Object.entries(ready.checks).sort(([a], [b]) => (a < b ? -1 : 1));
  const [accepting, setAccepting] = useState(false);
  const accept = async () => {
    await api.post('/clock/accept/');
    await reload();
    return 'Accepted the time.';
  };
  return html`<${Section} title=${ready.status === 'ready' ? 'Checks: ready' : 'Checks: not ready'}>
    <ul class="row badges">${all.map(([name, check]) => html`<li key=${name}><${Badge}
      status=${held && name === 'deliveries' ? 'queue_held' : check.ok ? check.warning ? 'failing' : 'healthy' : 'disabled'}
      text=${(names[name] ?? name) + (held && name === 'deliveries' ? ': held' : '')} /></li>`)}</ul>
    ${all.filter(([name, check]) => (check.problem || check.warning) && !(held && name === 'deliveries'))
      .map(([name, check]) => html`<${Bar} key=${name} tone=${check.problem ? 'danger' : 'warning'} title=${names[name] ?? name}>
      <p><${WithTimes} text=${check.problem || check.warning} /></p>
      ${name === 'clock' && can('platform:write') && html`<div class="row"><${Button} onClick=${() => setAccepting(true)}>Accept the time…<//></div>`}<//>`)}
    ${accepting && html`<${Confirm} title="Is the clock of the server right?" action="Accept the time" onConfirm=${accept} onClose=${() => setAccepting(false)}>
      <p>Compare it with your own clock first. What is past its time is removed from then on.</p><//>`}
  <//>`;
}

const runningFor = (seconds) => (seconds < 60 ? `${seconds} s` : duration(seconds * 1000));

const Process = ({ system }) => html`<${Section} title="Process"><${Facts} items=${[
  ['Version', system.version],
  ['Commit', system.commit === 'unknown' ? 'Unknown' : html`<code>${system.commit}</code>`],
  ['Date', system.commit_date === 'unknown' ? 'Unknown' : html`<${Time} value=${system.commit_date} form="exact" />`],
  ['Go', system.go_version],
  ['SQLite', system.sqlite_version],
  ['Running for', html`${runningFor(system.uptime_seconds)}<span class="quiet">, since <${Time} value=${system.started_at} form="exact" /></span>`],
  ['Clock', html`<${Time} value=${system.now} form="exact" />${!system.clock.trusted && html`<span class="warning"> not trusted</span>`}`],
]} /><//>`;

const Database = ({ database }) => html`<${Section} title="Database"><${Facts} items=${[
  ['File', html`<span class="id"><code>${database.path}</code><${Copy} text=${database.path} label="Copy the path" /></span>`],
  ['Size', html`${bytes(database.bytes)}<span class="quiet"> and ${bytes(database.wal_bytes)} of write-ahead log</span>`],
  ['Free disk', database.free_bytes === null ? 'Unknown' : bytes(database.free_bytes)],
  ['Commits', html`${number(database.commits)}<span class="quiet"> since the start</span>`],
  ['Durability', html`synchronous = ${database.synchronous}`],
  ['Schema', html`version ${database.schema_version}`],
]} /><//>`;

function Backup() {
  const [open, setOpen] = useState(false);
  const [made, setMade] = useState(null);
  const ask = () => {
    setMade(null);
    setOpen(true);
  };
  return html`<${Button} onClick=${ask}>Back up now…<//>
    ${open && html`<${Confirm} title="Back up the database?" action="Make a backup" onClose=${() => setOpen(false)}
      onConfirm=${async () => setMade(await api.post('/backups/', {}))}>
      <p>Keyhook copies the database to the directory <code>backups</code> beside it, and checks the copy. That takes about a second for 50 MB.</p>
      <p>Requests and deliveries go on. Older backups stay.</p><//>`}
    ${made && html`<${Dialog} title="The backup is made" onClose=${() => setMade(null)}><${Made} backup=${made} /><//>`}`;
}

const Made = ({ backup }) => html`
  ${backup.warning && html`<${Bar} tone="warning"><p>${backup.warning}</p><//>`}
  <${Facts} items=${[
    ['File', html`<span class="id"><code>${backup.file}</code><${Copy} text=${backup.file} label="Copy the name" /></span>`],
    ['Size', bytes(backup.bytes)],
    ['Took', duration(backup.duration_ms)],
    ['Contains', `${count(backup.events, 'event')}, ${count(backup.deliveries, 'delivery', 'deliveries')}, ${number(backup.pending_deliveries)} waiting`],
    ['SHA-256', html`<code>${backup.sha256}</code>`],
    ['Encryption key', html`<code>${backup.encryption_key_id}</code>`],
  ]} />
  <p class="quiet">The encryption key is not in the backup. Keep both, in different places.</p>`;

const Interfaces = () => html`<${Section} title="Documents and interfaces"><ul class="row">
  <li><a class="button" href=${settings.base + '/openapi.yaml'} download="keyhook-openapi.yaml">Download OpenAPI file</a></li>
  <li><a class="button" href=${settings.base + '/openapi.json'} download="keyhook-openapi.json">As JSON</a></li>
  <li><a class="button" href=${settings.base + '/docs/'} target="_blank" rel="noreferrer">Documents</a></li>
  <li><a class="button" href=${settings.base + '/docs/operating/'} target="_blank" rel="noreferrer">How to operate Keyhook</a></li>
  <li><a class="button" href=${settings.base + '/metrics/'} target="_blank" rel="noreferrer">Metrics</a></li>
</ul><//>`;
