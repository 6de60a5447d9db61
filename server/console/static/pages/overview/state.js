// What the overview shows. It loads again when the counts of the look have changed, so an idle page asks for little.
import { api } from '../../api.js';
import { useLoad, usePoll, useRepeat } from '../../ui/hooks.js';
import { attention, useLook } from '../../look.js';
import { can, isOperator, session } from '../../session.js';
import { needsAttention } from '../../paths.js';
import { rangeStart } from '../../ui/filters.js';

const most = 50; // problems in the list

// useOverview reads the counts, the subscriptions with a problem, the attempts of a period ([range, step in seconds]), the first steps,
// and for operators the state of the instance. data is undefined until all of them but the attempts are there.
export function useOverview(all, [range, step]) {
  const query = { organization: all ? 'all' : '' };
  const look = useLook(all), backlog = look.counts, statuses = backlog?.statuses;
  const deps = [all, JSON.stringify(backlog)];
  const problems = useLoad((signal) => statuses && readProblems(statuses, query, signal), deps);
  const known = useSteps(query);
  const instance = usePoll(readInstance, deps, isOperator() ? 30_000 : 0);
  const stats = usePoll((signal) => backlog && api.get('/webhooks/stats/', {
    signal, query: { ...query, since: rangeStart(range), step },
  }), [...deps, range], look.isBusy ? 5000 : 30_000);

  const parts = [look, problems, known, instance];
  const error = parts.find((part) => part.error)?.error;
  const reload = () => Promise.all([...parts, stats].map((part) => part.reload()));
  if (!backlog || [problems, known, instance].some((part) => part.data === undefined)) return { error, reload, stats };
  const { healthy, failing, disabled } = statuses;
  const data = {
    ...instance.data, backlog, problems: problems.data, count: attention(backlog),
    steps: [healthy + failing + disabled > 0, ...known.data.slice(0, 2)], first: known.data[2],
  };
  return { data, error, reload, stats };
}

// useSteps tells which of the first steps are done: keys and events exist, and nobody needs a key once an event was delivered; in a
// portal, a test and an event have arrived. It asks until they are.
function useSteps(query) {
  const known = useLoad((signal) => (session.get().portal ? readArrivals(signal) : Promise.all([
    has('/api-keys/', 'api_keys:read', query, signal), has('/events/', 'events:read', { ...query, audit_events: false }, signal),
    has('/events/', 'events:read', { ...query, audit_events: false, state: 'delivered' }, signal),
  ]).then(([key, event, delivered]) => [key || (delivered ? null : key), event])), [query.organization]);
  useRepeat(known.reload, known.data?.includes(false) ? 5000 : 0, [query.organization]);
  return known;
}

let arrived = ''; // the organization in which an event has

// readArrivals returns what useSteps tells, then the newest subscription with an address, the last test, and the last event that arrived.
// It tells null where nobody may know, and where nothing has an address but feeds are read.
async function readArrivals(signal) {
  const { id } = session.get().me.organization;
  if (arrived === id || !can('events:read')) return [null, null];
  const list = async (path, query) => (await api.get(path, { signal, query })).data;
  const [subscriptions, events, [event]] = await Promise.all([list('/webhooks/subscriptions/'), list('/events/', { audit_events: false }),
    list('/events/', { audit_events: false, state: 'delivered', limit: 1 })]);
  const endpoint = subscriptions.find((s) => s.url), test = events.find((e) => e.test);
  arrived = event ? id : '';
  if (!endpoint && subscriptions.length) return [null, null];
  return [Boolean(event) || test?.states.delivered > 0, Boolean(event), { endpoint, test, event }];
}

// readInstance reads the list of waiting deliveries only while something is wrong with them.
async function readInstance(signal) {
  if (!isOperator()) return {};
  const system = await api.get('/system/', { signal, organization: '' });
  const queue = system.deliveries.warning ? await api.get('/queue/', { signal, organization: '' }) : null;
  return { system, queue };
}

// readProblems returns the subscriptions that failed, those of one customer together. The worst comes first: what is disabled, then
// what has the most waiting deliveries.
async function readProblems({ failing, disabled, paused }, query, signal) {
  const problems = failing + disabled > paused ? await list(query, signal) : [];
  problems.sort((a, b) => (a.status === b.status ? b.pending_deliveries - a.pending_deliveries : a.status < b.status ? -1 : 1));
  const customers = [...new Set(problems.map((s) => s.organization_id))];
  problems.sort((a, b) => customers.indexOf(a.organization_id) - customers.indexOf(b.organization_id));
  return problems;
}

// list reads up to a few pages: among very many healthy subscriptions, the search of one page ends early.
async function list(query, signal) {
  const rows = [];
  let cursor = null;
  for (let page = 0; page < 5 && rows.length < most; page++) {
    const found = await api.get('/webhooks/subscriptions/', { signal, query: { ...query, status: needsAttention, paused: false, cursor, limit: most } });
    rows.push(...found.data);
    if (!found.has_more) break;
    cursor = found.next_cursor;
  }
  return rows;
}

const seen = new Set(); // what there was once, need not be asked for again

// has tells whether a list has an item; null if nobody may know.
async function has(path, permission, query, signal) {
  if (!can(permission)) return null;
  const key = path + JSON.stringify(query) + session.get().me.organization.id;
  if (seen.has(key)) return true;
  const { data } = await api.get(path, { signal, query: { ...query, limit: 1 } });
  if (data.length) seen.add(key);
  return seen.has(key);
}
