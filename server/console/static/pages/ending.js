// deleting one that nothing needs, and ending an organization or a user, whose data is removed later.
import { html, useState } from '../ui/html.js';
import { Facts } from '../ui/page.js';
import { Confirm } from '../ui/dialog.js';
import { Bar, Loading } from '../ui/state.js';
import { useLoad, usePoll } from '../ui/hooks.js';
import { api } from '../api.js';
import { navigate } from '../router.js';
import { can } from '../session.js';

// Deletion asks, deletes what is at a path of the API, and goes to a page, which tells what was deleted (said). The other properties
// are those of Confirm.
export function Deletion({ path, to, said, ...rest }) {
  const remove = async () => {
    await api.delete(path);
    navigate(to);
    return said;
  };
  return html`<${Confirm} danger ...${rest} onConfirm=${remove} />`;
}

// End asks with the numbers of the dry run. items(ends) are facts; children say what it is for. typed is what one types.
export function End({ path, title, action, typed, items, said, reload, onClose, children }) {
  const { data: ends, error } = useLoad((signal) => api.post(path, { dry_run: true }, { signal }), [path]);
  const end = async () => {
    await api.post(path, {});
    await reload();
    return said;
  };
  return html`<${Confirm} title=${title} action=${action} danger typed=${ends && typed} disabled=${!ends} onConfirm=${end} onClose=${onClose}>
    ${ends ? html`<p>${children}</p><${Facts} items=${items(ends)} />` : html`<${Loading} error=${error} rows=${4} />`}<//>`;
}

// Ended says how far the removal is: removing, then removed.
export function Ended({ path, title, removing, removed }) {
  const [done, setDone] = useState(false);
  const { data } = usePoll(async (signal) => {
    if (!can('platform:write')) return null;
    const state = await api.post(path, { dry_run: true }, { signal });
    setDone(state.complete);
    return state;
  }, [path], done ? 0 : 2000);
  return html`<${Bar} tone=${data?.complete ? 'success' : 'info'} title=${title}><p>${data?.complete ? removed : removing}</p><//>`;
}
