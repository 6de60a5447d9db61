// What the overview shows, read in one go.
import { api } from '../../api.js';
import { can, isOperator, session } from '../../session.js';

const most = 100; // problems in the list

// readState reads the backlog, the subscriptions with a problem, the first steps, and for operators the state of the instance.
export async function readState(all, signal) {
  const query = { organization: all ? 'all' : '' };
  const backlog = await api.get('/webhooks/backlog/', { signal, query });
  const { healthy, failing, disabled, paused } = backlog.statuses;
  const [bad, worse, hasKey, hasEvent, system, queue] = await Promise.all([
    failing > 0 ? list('failing', query, signal) : [],
    disabled > paused ? list('disabled', query, signal) : [],
    has('/api-keys/', 'api_keys:read', query, signal),
    has('/events/', 'events:read', query, signal),
    isOperator() ? api.get('/system/', { signal, organization: '' }) : null,
    isOperator() ? api.get('/queue/', { signal, organization: '' }) : null,
  ]);
  const problems = [...worse, ...bad].filter((s) => s.blocked_by !== 'paused').sort((a, b) => b.pending_deliveries - a.pending_deliveries);
  if (all) await name(problems, signal);
  return { backlog, problems, count: failing + disabled - paused, steps: [healthy + failing + disabled > 0, hasKey, hasEvent], system, queue };
}

// list reads subscriptions of a status, up to a few pages: a page may be empty although more follow.
async function list(status, query, signal) {
  const rows = [];
  let cursor = null;
  for (let page = 0; page < 5 && rows.length < most; page++) {
    const { data, next_cursor, has_more } = await api.get('/webhooks/subscriptions/', { signal, query: { ...query, status, cursor, limit: most } });
    rows.push(...data.filter((s) => s.blocked_by !== 'paused'));
    if (!has_more) break;
    cursor = next_cursor;
  }
  return rows;
}

const seen = new Set(); // what there was once, need not be asked for again

// has tells whether a list has an item; null if nobody may know.
async function has(path, permission, query, signal) {
  if (!can(permission)) return null;
  const key = path + query.organization + session.get().me.organization.id;
  if (!seen.has(key) && (await api.get(path, { signal, query: { ...query, limit: 1 } })).data.length) seen.add(key);
  return seen.has(key);
}

const names = new Map(); // of organizations, by their ids

async function name(problems, signal) {
  const missing = [...new Set(problems.slice(0, 20).map((s) => s.organization_id))].filter((id) => !names.has(id));
  await Promise.all(missing.map(async (id) => names.set(id, (await api.get(`/organizations/${id}/`, { signal, organization: '' })).name)));
  for (const s of problems) s.organization_name = names.get(s.organization_id) ?? s.organization_id;
}
