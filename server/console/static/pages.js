// The pages: path, title, and who sees them. nav puts a page into the side bar: [group, icon]. needs is the permission to read
// what the page shows. A page that is not here does not exist yet.
import { Subscriptions } from './pages/subscriptions.js';
import { Keys } from './pages/keys.js';
import { NewKey } from './pages/key_new.js';
import { Key } from './pages/key.js';
import { ExplainRequest } from './pages/explain.js';

export const pages = [
  { path: '/subscriptions/', title: 'Subscriptions', page: Subscriptions, needs: 'webhooks:read', nav: ['', 'subscriptions'] },
  { path: '/keys/', title: 'API keys', page: Keys, needs: 'api_keys:read', nav: ['', 'keys'] },
  { path: '/keys/new/', title: 'New API key', page: NewKey, needs: 'api_keys:write' },
  { path: '/keys/explain/', title: 'Explain a request', page: ExplainRequest, needs: 'api_keys:read' },
  { path: '/keys/{id}/', title: 'API key', page: Key, needs: 'api_keys:read' },
];

// first is the page that opens at the root of the console if there is no overview.
export const first = pages[0].path;
