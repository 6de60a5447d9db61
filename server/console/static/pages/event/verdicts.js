// The verdicts of /events/{id}/explain/ in words.
//
// status and text are for the badge. waits completes "1 …" for a delivery that waits. rank sorts: problems come first.

export const verdicts = {
  exhausted: { status: 'exhausted', rank: 0 },
  expired: { status: 'expired', rank: 0 },
  held_disabled: { status: 'disabled', text: 'Waiting: disabled', rank: 1,
    waits: 'waits, because failures have disabled its subscription', many: 'wait, because failures have disabled their subscriptions' },
  held_paused: { status: 'paused', text: 'Waiting: paused', rank: 1, waits: 'waits, because its subscription is paused',
    many: 'wait, because their subscriptions are paused' },
  held_queue: { status: 'queue_held', text: 'Waiting: sending stopped', rank: 1,
    waits: 'waits, because all sending is stopped', many: 'wait, because all sending is stopped' },
  blocked_by_plan: { status: 'plan', text: 'Waiting: plan', rank: 1,
    waits: 'waits, because the plan has no webhooks', many: 'wait, because the plan has no webhooks' },
  waiting_for_probe: { status: 'failing', text: 'Waiting: failing', rank: 2,
    waits: 'waits, because its subscription is failing', many: 'wait, because their subscriptions are failing' },
  waiting_for_pace: { status: 'pending', text: 'Waiting: pace', rank: 3, waits: 'waits for its turn', many: 'wait for their turn' },
  scheduled: { status: 'pending', rank: 3, waits: 'waits for its next attempt', many: 'wait for their next attempts' },
  sending: { status: 'sending', rank: 3, waits: 'is being sent now', many: 'are being sent now' },
  delivered: { status: 'delivered', rank: 4 },
  dropped: { status: 'discarded', rank: 5 },
  not_wanted: { text: 'Not wanted', isAbsent: true },
  created_later: { text: 'Created later', isAbsent: true },
  plan_lacked_webhooks: { text: 'Not in the plan', isAbsent: true },
  filtered: { text: 'Filtered', isAbsent: true },
  in_feed: { text: 'In the feed', isAbsent: true },
  about_itself: { text: 'About itself', isAbsent: true },
};

// states are the states of deliveries, as far as a verdict says the same.
const states = { delivered: 'delivered', exhausted: 'exhausted', dropped: 'dropped', pending: 'scheduled' };
const order = ['delivered', 'pending', 'exhausted', 'dropped'];

// outcomes returns [{ id, verdict, next, attempts, error }] of the subscriptions with a delivery. An event may have several deliveries
// to a subscription; the one that came furthest decides. The reasons say more, but may not be loaded.
export function outcomes(event, reasons) {
  const found = new Map();
  for (const { subscription_id: id, state, attempts, next_attempt_at: next } of event.deliveries) {
    const known = found.get(id);
    if (!known || order.indexOf(state) < order.indexOf(known.state)) found.set(id, { id, state, next, attempts });
  }
  const explained = new Map((reasons ?? []).map((r) => [r.subscription_id, r]));
  return [...found.values()].map((o) => {
    const reason = explained.get(o.id);
    const isSame = reason && (reason.verdict in states ? reason.verdict : 'pending') === o.state;
    return { ...o, verdict: isSame ? reason.verdict : states[o.state], error: isSame ? reason.last_error : null };
  });
}
