// The switcher of organizations, for operators and for members of several. The organization is in the URL, so a shared URL opens the
// same one.
import { html, useState } from '../ui/html.js';
import { Icon } from '../ui/icon.js';
import { api } from '../api.js';
import { navigate, place } from '../router.js';
import { useSession, actingIn, actsEverywhere } from '../session.js';
import { Combobox } from './combobox.js';

// A page of one thing does not exist in another organization, so the switch goes to the list of such things.
const listOf = (path) => `/${path.split('/')[1]}${path === '/' ? '' : '/'}`;

export function Switcher() {
  const { me, home } = useSession();
  const [open, setOpen] = useState(false);
  const find = async (search, signal) => {
    if (!actsEverywhere()) return home.organizations.filter((o) => o.name.toLowerCase().startsWith(search.toLowerCase()));
    return (await api.get('/organizations/', { query: { search, limit: 10 }, organization: '', signal })).data;
  };
  const choose = ({ id }) => navigate(listOf(place.get().path), { org: actingIn(id) });
  const name = me?.organization.name ?? 'Unknown';
  if (!open) {
    return html`<button type="button" class="organization switch" aria-haspopup="listbox"
      aria-label=${`Organization: ${name}`} title="Act in another organization" onClick=${() => setOpen(true)}>
      <span class="cut"><bdi>${name}</bdi></span><${Icon} name="down" /></button>`;
  }
  return html`<div class="switching"><${Combobox} label="Organization" placeholder="Find an organization" early autofocus
    find=${find} choose=${choose} onClose=${() => setOpen(false)} none=${(text) => `No organization begins with “${text}”.`}
    show=${(o) => html`<span class="option-text"><span class="cut strong"><bdi>${o.name}</bdi></span>
      ${o.external_id && html`<span class="cut small quiet"><bdi>${o.external_id}</bdi></span>`}</span>
      ${o.id === me?.organization.id && html`<${Icon} name="check" />`}`} /></div>`;
}
