// A link without ?org= opens for an operator, whatever organization its thing belongs to: the search knows the organization.
import { useEffect, useState } from './ui/html.js';
import { api } from './api.js';
import { navigate, place } from './router.js';
import { actingIn, actsEverywhere, session } from './session.js';

export const publicId = /\b[a-z]{2,6}_[0-9a-z]{26}\b/i;

// useElsewhere returns whether the page looks for a thing that was not found (404) in other organizations. It goes on there.
export function useElsewhere(error) {
  const isMissing = error?.status === 404 && actsEverywhere();
  const [looked, setLooked] = useState(false);
  useEffect(() => {
    if (!isMissing) return;
    goThere().catch(() => null).then(() => setLooked(true)); // the page says that nothing was found
  }, [isMissing]);
  return isMissing && !looked;
}

async function goThere() {
  const { path, query } = place.get();
  const id = publicId.exec(`${path} ${query.id ?? ''}`)?.[0];
  if (!id) return;
  const { data } = await api.get('/search/', { query: { q: id }, organization: '' });
  const { me } = session.get();
  const found = data.find((r) => r.id === id && r.organization_id && r.organization_id !== me?.organization.id);
  if (found && place.get().path === path) {
    navigate(path, { ...query, org: actingIn(found.organization_id) }, { replace: true });
  }
}
