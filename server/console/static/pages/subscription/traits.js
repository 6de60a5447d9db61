// What is special about how a subscription is sent to: in order, filtered, at most so many requests a second.
import { count } from '../../ui/time.js';
import { sentences } from './filter.js';

// traits are short, for a list. Without one, the text is empty.
export const traits = ({ ordered, filter, rate_limit_per_second: limit }) => [
  ordered && 'in order', filter?.length && 'filtered', limit !== null && `at most ${limit}/s`,
].filter(Boolean).join(' · ');

// facts are whole, for the page of the subscription.
export const facts = ({ ordered, filter, rate_limit_per_second: limit }) => [
  ordered && ['Order', 'In order: an event waits for the one before it'],
  filter?.length && ['Filter', sentences(filter)],
  limit !== null && ['Limit', `At most ${count(limit, 'request')} a second`],
];
