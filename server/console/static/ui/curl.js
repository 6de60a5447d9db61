// The command that does the same as a page.
import { html } from './html.js';
import { Code } from './code.js';
import { place } from '../router.js';
import { session } from '../session.js';
import { settings } from '../settings.js';

export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// Curl shows a request with curl, in the organization of the page. headers are further ones, as "Name: value". In the portal, people have
// API keys and no access tokens.
export function Curl({ path, body, method, headers = [] }) {
  const { org } = place.get();
  const credential = session.get().portal ? 'ApiKey $KEY' : 'Bearer $TOKEN';
  const isInOrganization = org && !path.startsWith('/organizations/');
  const more = [isInOrganization && `X-Organization-Id: ${org}`, ...headers].filter(Boolean).map(quoted);
  const all = [`"Authorization: ${credential}"`, '"Content-Type: application/json"', ...more].map((header) => `  -H ${header} \\\n`);
  return html`<${Code} label="The same with curl" text=${`curl ${method ? `-X ${method} ` : ''}${quoted(`${location.origin}${settings.base}/api/v1${path}`)} \\
${all.join('')}  -d ${quoted(body).replaceAll('\n', '\n      ')}`} />`;
}
