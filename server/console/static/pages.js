// The pages: path, title, and who sees them. from loads the module of a page when it is opened, or before, while the browser has
// nothing to do; page is its name there. nav puts a page into the side bar: [group, icon]. needs is the permission to read what
// the page shows: nobody without it loads the module. A page that is not here does not exist yet.
export const pages = [
  { path: '/subscriptions/', title: 'Subscriptions', from: () => import('./pages/subscriptions.js'), page: 'Subscriptions', needs: 'webhooks:read', nav: ['', 'subscriptions'] },
];

// first is the page that opens at the root of the console if there is no overview.
export const first = pages[0].path;
