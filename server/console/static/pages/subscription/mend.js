// What to do about an attempt that failed, and about a delivery that has not arrived. The texts of the API say what happened.

const errors = [
  [/^http_status: (401|403)/, 'The receiver refuses the request. Compare the signing secret, and the request headers that the receiver wants.'],
  [/^http_status: (404|410)/, 'The receiver has nothing at this path. Correct the address.'],
  [/^http_status: 405/, 'The receiver takes no POST at this path. Correct the address.'],
  [/^http_status: 413/, 'The event is too large for the receiver. Raise the limit of the receiver.'],
  [/^http_status: 429/, 'The receiver wants fewer requests. Set a limit in the settings.'],
  [/^http_status: 3/, 'Keyhook follows no redirects. Enter the address to which the receiver redirects.'],
  [/^http_status: 4/, 'The receiver refuses the request. Its answer or its log says why.'],
  [/^http_status: 5/, 'The receiver has a fault. Its answer or its log says why.'],
  [/^dns_error/, 'The host of the address has no entry in the DNS. Look for a typing error.'],
  [/^connect_error/, 'Nothing accepts connections at the address. Start the receiver, and look at its port and its firewall.'],
  [/^tls_error/, 'The certificate of the receiver is not valid for this address. Renew it, or send the whole chain.'],
  [/^timeout/, 'The receiver did not answer in time. Answer first, and do long work afterwards.'],
  [/^blocked_address/, 'Keyhook sends nothing to this network. An operator can allow it with egress.allowed_networks.'],
  [/^protocol_error/, 'The answer is no valid HTTP. Look at the proxy in front of the receiver.'],
];

// inWords says a sentence of the API in the words of the console.
export const inWords = (text) => text.replace(/\bhttp_status: /, 'the receiver answered ').replace(/\bdeactivated by /, 'paused by ').replace(/\breactivated\b/, 'resumed');

// wordsOf says an error of the API without its class: "The receiver answered 503", "Connection refused", "Paused by Ann".
export function wordsOf(error) {
  const text = error && inWords(error).replace(/^[a-z_]+: /, '');
  return text && text[0].toUpperCase() + text.slice(1);
}

// mendOf returns a sentence about the error of an attempt; empty if there is nothing to say.
export const mendOf = (error) => errors.find(([pattern]) => pattern.test(error ?? ''))?.[1] ?? '';

// verdicts have the tone and the title of each verdict of /events/{id}/explain/.
export const verdicts = {
  delivered: ['success', 'The event has arrived'],
  sending: ['info', 'An attempt is in progress'],
  scheduled: ['info', 'The next attempt is planned'],
  waiting_for_probe: ['warning', 'Waits, because the subscription is failing'],
  waiting_for_pace: ['info', 'Waits, because of the limit of requests a second'],
  held_disabled: ['danger', 'Waits, because failures have disabled the subscription'],
  held_paused: ['warning', 'Waits, because the subscription is paused'],
  held_queue: ['warning', 'Waits, because an operator holds the queue'],
  blocked_by_plan: ['warning', 'Waits, because the plan has no webhooks'],
  exhausted: ['danger', 'Keyhook gave up'],
  dropped: ['warning', 'The delivery was discarded'],
  expired: ['warning', 'The delivery waited longer than events are kept'],
};
