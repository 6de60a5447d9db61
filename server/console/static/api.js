// The only caller of fetch.
//
// Paths are below /api/v1. A response with an error status is thrown as an ApiError.
// A GET is repeated while the server is away. Other requests are sent once: the caller decides what to do.
import { settings } from './settings.js';
import { createStore } from './ui/store.js';
import { queryText } from './router.js';

export class ApiError extends Error {
  constructor({ status = 0, code = '', title = '', detail = '', request_id = '', errors = [], conflicting_id = null, retryAfter = 0 }) {
    super(detail || title || `The server answered with status ${status}.`);
    Object.assign(this, { status, code, requestId: request_id, retryAfter, conflictingId: conflicting_id });
    // fields has the first message for each field: { url: '…', 'event_types.0': '…' }.
    this.fields = {};
    for (const { field, message } of errors) this.fields[field] ??= message;
  }
}

// connection.get().away says why there is no answer; empty while the server answers.
export const connection = createStore({ away: '' });

let organization = '';
let signInAgain = () => Promise.reject(new Error('signed out'));

// actIn sets the organization in which all requests act. Empty is the caller's own.
export function actIn(id) { organization = id; }

// onSignedOut sets the function that has the user sign in again. It resolves when the user has done so.
export function onSignedOut(ask) { signInAgain = ask; }

export const api = {
  get: (path, options) => request('GET', path, undefined, options),
  post: (path, body, options) => request('POST', path, body, options),
  put: (path, body, options) => request('PUT', path, body, options),
  patch: (path, body, options) => request('PATCH', path, body, options),
  delete: (path, options) => request('DELETE', path, undefined, options),
};

// A body is a value, or a text that is JSON already, so numbers keep their digits.
//
// Options of a request:
//   query         an object; empty values are left out
//   signal        of an AbortController
//   organization  acts in this organization instead of the one of the page; '' is the caller's own
//   signIn        false: a 401 is thrown, and the user is not asked to sign in
async function request(method, path, body, options = {}) {
  const { query, signal, organization: other, signIn = true } = options;
  const url = settings.base + '/api/v1' + path + queryText(query);
  const headers = { Accept: 'application/json' };
  const actsIn = other ?? organization;
  if (actsIn) headers['X-Organization-Id'] = actsIn;
  const init = { method, headers, signal, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
    init.body = typeof body === 'string' ? body : JSON.stringify(body);
  }
  for (let attempt = 0; ; attempt++) {
    const { response, error } = await send(url, init);
    if (response?.ok) {
      reached();
      return response.status === 204 ? null : response.json();
    }
    if (isAway(error) && method === 'GET') {
      connection.set({ away: error.message });
      await wait(Math.max(error.retryAfter * 1000, Math.min(500 * 2 ** attempt, 10_000)), signal);
      continue;
    }
    if (error.status) reached();
    if (error.status === 401 && signIn) {
      await signInAgain();
      if (method === 'GET') continue;
      throw new ApiError({ code: 'signed_out', detail: 'Your session had ended, so nothing was done. You are signed in again: try again.' });
    }
    throw error;
  }
}

async function send(url, init) {
  let response;
  try {
    response = await fetch(url, init);
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    const unsafe = init.method !== 'GET';
    return { error: new ApiError({
      code: 'unreachable',
      detail: unsafe
        ? 'The server did not answer. It may have done this: reload the page and look before you try again.'
        : 'The server does not answer.',
    }) };
  }
  if (response.ok) return { response };
  const isProblem = response.headers.get('Content-Type')?.includes('json');
  const problem = isProblem ? await response.json().catch(() => ({})) : {};
  return { error: new ApiError({
    ...problem, status: response.status,
    request_id: problem.request_id ?? response.headers.get('X-Request-Id') ?? '',
    retryAfter: Number(response.headers.get('Retry-After')) || 0,
  }) };
}

// readDocument returns a document for users, such as "receiving", as an HTML document. Nothing in it runs.
export async function readDocument(name, signal) {
  const { response, error } = await send(`${settings.base}/docs/${name}/`, { method: 'GET', signal });
  if (error) throw error;
  return new DOMParser().parseFromString(await response.text(), 'text/html');
}

// A proxy answers 502, 503 or 504 while the server restarts. 429 says when to try again.
function isAway(error) {
  return error.code === 'unreachable' || [429, 502, 503, 504].includes(error.status);
}

function reached() {
  if (connection.get().away) connection.set({ away: '' });
}

function wait(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

// readiness returns the body of /readyz/, which is not below /api/v1, whether the server is ready or not.
export async function readiness(signal) {
  const response = await fetch(settings.base + '/readyz/', { signal, cache: 'no-store' });
  return response.json();
}

// isAborted tells an error of a request that the page has given up.
export const isAborted = (error) => error?.name === 'AbortError';
