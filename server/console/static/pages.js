// The pages: path, title, and who sees them. nav puts a page into the side bar: [group, icon]. needs is the permission to read
// what the page shows. A page that is not here does not exist yet.
import { Subscriptions } from './pages/subscriptions.js';

export const pages = [
  { path: '/subscriptions/', title: 'Subscriptions', page: Subscriptions, needs: 'webhooks:read', nav: ['', 'subscriptions'] },
];

// first is the page that opens at the root of the console if there is no overview.
export const first = pages[0].path;
