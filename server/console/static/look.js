// How many subscriptions and deliveries there are in each state: asked for here, for all that shows it or loads again when it changes.
import { useEffect, useRef } from './ui/html.js';
import { createStore, useStore } from './ui/store.js';
import { useLoad, usePoll } from './ui/hooks.js';
import { told } from './ui/told.js';
import { api } from './api.js';
import { can, isOperator, useSession } from './session.js';

// own are the counts of the organization of the page, with its id; all are those of all organizations, for operators.
const look = createStore({ own: null, all: null, organization: '', changed: 0, error: null, reload: () => {} });

const busy = 5000, idle = 15_000; // between two looks: while something changes, and a minute after the last change
const minute = 60_000;

// useLooking asks again and again, and after each act. Only the frame calls it.
export function useLooking() {
  const organization = useSession().me?.organization.id ?? '';
  const { acts } = useStore(told);
  const everywhere = isOperator(), mayRead = organization !== '' && can('webhooks:read');
  const read = async (scope, signal) => mayRead
    && { organization, counts: await api.get('/webhooks/backlog/', { signal, query: { organization: scope } }) };
  const changed = useRef({ text: '', at: 0 });
  const first = usePoll((signal) => read(everywhere ? 'all' : '', signal), [organization, mayRead, everywhere, acts],
    Date.now() - changed.current.at < minute ? busy : idle);
  const text = JSON.stringify(first.data);
  if (text && text !== changed.current.text) changed.current = { text, at: changed.current.text ? Date.now() : 0 };
  // What changes in an organization changes in all of them, too.
  const own = useLoad(async (signal) => (everywhere ? first.data && read('', signal) : first.data), [text]);
  useEffect(() => look.set({
    changed: changed.current.at, organization: own.data?.organization ?? '', own: own.data?.counts,
    all: everywhere ? first.data?.counts : null, error: first.error ?? own.error, reload: first.reload,
  }), [own.data, first.data, first.error, own.error]);
}

// useLook returns the counts, undefined before they are there, or the error, and whether they change now. everywhere: those of all
// organizations.
export function useLook(everywhere = false) {
  const { organization, own, all, changed, error, reload } = useStore(look);
  const isOwn = organization === useSession().me?.organization.id;
  return { counts: (everywhere ? all : isOwn && own) || undefined, isBusy: Date.now() - changed < minute, error, reload };
}

// attention is the number of subscriptions that fail, or that failures have disabled. A person paused some of them; they are left out.
export const attention = (counts) => (counts ? counts.statuses.failing + counts.statuses.disabled - counts.statuses.paused : 0);
