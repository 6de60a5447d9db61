// What to do about an attempt that failed, and about a delivery that has not arrived. The texts of the API say what happened.

import { said } from '../../session.js';

// hints say where to look for the cause of a failure. server/explain/mend.go has the same sentences.
const hints = {
  check_secret: 'The receiver refuses the request. Compare the signing secret, the clocks, and the request headers that the receiver wants.',
  check_path: 'The receiver takes no POST at this path. Correct the URL.',
  redirected: 'Keyhook follows no redirects. Set the URL to which the receiver redirects.',
  check_certificate: 'The certificate of the receiver is not valid for this URL. Renew it, or send the whole chain.',
  check_host: 'Keyhook cannot connect to the host. Look at the URL, the DNS, the port and the firewall. A private address needs egress.allowed_networks.',
  too_slow: 'The receiver did not answer in time. Answer first, and do long work afterwards.',
  receiver_error: 'The receiver, or a proxy in front of it, has a fault. Its answer or its log says why.',
  receiver_refuses: 'The receiver refuses the request. Its answer or its log says why.',
  rate_limited_by_receiver: 'The receiver wants fewer requests. Set a limit of requests per second.',
};

// mendOf returns the sentence for the hint of an attempt or a subscription; empty if there is none.
export const mendOf = ({ hint }) => said(hints[hint] ?? '');

// words are the errors of the API that need other words without their class.
const words = { http_status: (status) => `The receiver answered ${status}` };

// wordsOf says an error of the API without its class: "The receiver answered 503", "Paused by Ann".
export function wordsOf(error) {
  if (!error) return error;
  if (error.startsWith('deactivated by ')) return error.replace('deactivated', 'Paused');
  const end = error.indexOf(': '), text = error.slice(end < 0 ? 0 : end + 2);
  return words[error.slice(0, Math.max(end, 0))]?.(text) ?? text[0].toUpperCase() + text.slice(1);
}

// classes are the classes of errors, as short as a column has room.
const classes = {
  dns_error: 'Host unknown', connect_error: 'No connection', tls_error: 'TLS failed', timeout: 'Timeout', blocked_address: 'Blocked',
  protocol_error: 'Bad answer',
};

export const classOf = (error) => classes[error?.split(':')[0]] ?? error?.split(':')[0];

const inDetail = new RegExp(`\\b(${Object.keys(classes).join('|')}): `, 'g');

// plain is a part of an explanation without the classes of errors: "The last error: the receiver answered 503."
export const plain = (text) => said(text).replace(/\bhttp_status: /g, 'the receiver answered ').replace(inDetail, '');

// verdicts have the tone and the title of each verdict of /events/{id}/explain/.
export const verdicts = {
  delivered: ['success', 'The event has arrived'],
  sending: ['info', 'An attempt is in progress'],
  scheduled: ['info', 'The next attempt is planned'],
  waiting_for_probe: ['warning', 'Waits, because the subscription is failing'],
  waiting_for_pace: ['info', 'Waits, because of the limit of requests a second'],
  held_disabled: ['danger', 'Waits, because failures have disabled the subscription'],
  held_paused: ['warning', 'Waits, because the subscription is paused'],
  held_queue: ['warning', 'Waits, because all sending is stopped'],
  blocked_by_plan: ['warning', 'Waits, because the plan has no webhooks'],
  exhausted: ['danger', 'Not delivered'],
  dropped: ['warning', 'The delivery was discarded'],
  expired: ['warning', 'The delivery waited longer than events are kept'],
};
