// Line icons of 16 × 16.
import { html, cx } from './html.js';
import { settings } from '../settings.js';

const ring = 'M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4z';

const paths = {
  overview: 'M2.5 13.5v-5M6.2 13.5v-9M9.8 13.5v-6M13.5 13.5v-11',
  subscriptions: 'M5.2 11.6a3.1 3.1 0 1 1-1.8-5.4M3.6 11.7 6.7 6.2M5.9 4.6a3.1 3.1 0 1 1 4.6 2.6M8.9 4.6l3 5.3M10.2 11.6h-3.9M10.3 10a3.1 3.1 0 1 1 .4 3.3',
  events: 'M9 1.5 3 9h4.5L7 14.5 13 7H8.5z',
  keys: 'M10.2 9.8a4.1 4.1 0 1 0-3.9-2.8L1.8 11.5v2.7h2.7v-1.7h1.7v-1.7h1.7l1-1zM11 5h.01',
  audit: 'M3.5 2h9v12h-9zM6 5.5h4M6 8h4M6 10.5h2.5',
  organizations: 'M2.5 14V3.5h6V14M8.5 7h5v7M1.5 14h13M5 6.3h1M5 9h1M5 11.7h1M11 9.5h.01M11 11.9h.01',
  users: 'M6 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5c0-2.5 2-4 4.5-4s4.5 1.5 4.5 4M10.5 2.7a2.5 2.5 0 0 1 0 4.6M12 9.7c1.6.6 2.5 2 2.5 3.8',
  plans: 'M8 1.8 14.2 5 8 8.2 1.8 5zM1.8 8 8 11.2 14.2 8M1.8 11 8 14.2 14.2 11',
  roles: 'M8 1.5l5.5 2v4.3c0 3.2-2.3 5.5-5.5 6.7-3.2-1.2-5.5-3.5-5.5-6.7V3.5zM5.7 8l1.7 1.7 3-3.2',
  system: 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.7 14 14',
  check: 'M3 8.5l3.2 3.2L13 4.8',
  cross: 'M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4',
  ok: ring + 'M5.3 8.2l1.9 1.9 3.5-3.9',
  circle: ring,
  bad: ring + 'M6 6l4 4M10 6l-4 4',
  warn: 'M8 2 14.5 13.5h-13zM8 6.5v3M8 11.5h.01',
  info: ring + 'M8 7.3v3.7M8 5h.01',
  off: ring + 'M3.7 12.3l8.6-8.6',
  pause: ring + 'M6.5 6v4M9.5 6v4',
  clock: ring + 'M8 4.5V8l2.3 1.5',
  lock: 'M3.5 7.5h9v6h-9zM5.5 7.5v-2a2.5 2.5 0 0 1 5 0v2',
  send: 'M14 2 1.5 6.5l5 2.5zM14 2 9.5 14.5 6.5 9',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  menu: 'M2 4h12M2 8h12M2 12h12',
  down: 'M4 6.2 8 10.2 12 6.2',
  right: 'M6 4l4 4-4 4',
  left: 'M10 4 6 8l4 4',
  plus: 'M8 3v10M3 8h10',
  external: 'M9.5 2.5h4v4M13.5 2.5 7.5 8.5M12 9.5v4H2.5V4h4',
  reload: 'M13.5 8A5.5 5.5 0 1 1 11.7 4L13.5 5.7M13.5 2.5v3.2h-3.2',
  user: 'M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8zM2.5 14c0-2.7 2.4-4.2 5.5-4.2s5.5 1.5 5.5 4.2',
  colours: ring + 'M8 1.8v12.4M8 4.5h4.2M8 8h6M8 11.5h4.2',
  leave: 'M6.5 2.5h-4v11h4M10 4.5 13.5 8 10 11.5M13.5 8H6',
  brand: 'M5.75 10.5a3.25 3.25 0 1 0 0-6.5 3.25 3.25 0 0 0 0 6.5zM9 7.25h6M12.25 7.25v2.75',
};

// Mark is the logo of the host, or the mark of Keyhook.
export const Mark = () => (settings.logo ? html`<img src=${settings.logo} alt="" />` : html`<${Icon} name="brand" />`);

// Icon is decoration: a word beside it says the same.
export const Icon = ({ name, class: tone }) =>
  html`<svg class=${cx('icon', tone)} viewBox="0 0 16 16" aria-hidden="true"><path d=${paths[name]} /></svg>`;
