// Loading data: once, again and again, or page by page. All keep the old data until the new data is there, so nothing flickers.
import { useState, useEffect, useRef, useCallback } from './html.js';
import { api, isAborted } from '../api.js';

// useLoad calls load(signal) at first and whenever deps change. Give a component that shows one thing a key with its id, so that
// it never shows the data of another one.
export function useLoad(load, deps) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const latest = useRef(load);
  latest.current = load;
  const running = useRef(null);
  const reload = useCallback(async (changed = false) => {
    running.current?.abort();
    const { signal } = running.current = new AbortController();
    setState((s) => ({ ...s, error: changed === true ? null : s.error, loading: true }));
    try {
      const data = await latest.current(signal);
      if (!signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!signal.aborted && !isAborted(error)) setState((s) => ({ data: changed === true ? undefined : s.data, error, loading: false }));
      return error;
    }
  }, []);
  useEffect(() => {
    reload(true);
    return () => running.current?.abort();
  }, deps);
  return { ...state, reload };
}

// usePoll is useLoad that loads again every ms while the page is visible. Errors make it slower.
export function usePoll(load, deps, ms) {
  const state = useLoad(load, deps);
  useRepeat(state.reload, ms, deps);
  return state;
}

// useRepeat calls act every ms while the page is visible; act returns an error, or nothing. It stops while ms is 0.
export function useRepeat(act, ms, deps = []) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (!ms) return undefined;
    let timer, failures = 0, ended = false;
    const plan = () => { timer = setTimeout(tick, ms * Math.min(2 ** failures, 16)); };
    const tick = async () => {
      if (document.hidden) return;
      failures = await latest.current() ? failures + 1 : 0;
      if (!ended) plan();
    };
    const onVisible = () => { clearTimeout(timer); tick(); };
    plan();
    document.addEventListener('visibilitychange', onVisible);
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [ms, ...deps]);
}

const mostRows = 200; // in a page of the API

// New rows of a list. With a cursor, others are missing between them and the rows before: the list goes on at the cursor instead.
const nothing = { rows: [], cursor: null };

// useList loads a list of the API by pages. With poll, it loads the first page again every so many milliseconds: known rows
// change in place, and rows of a list of one page disappear when they are gone. New rows appear at the top, or wait in arrived while
// the user has scrolled or selected a row. id returns what identifies a row.
export function useList(path, query = {}, { poll = 0, limit = 50, id = (row) => row.id, options = {} } = {}) {
  const key = path + JSON.stringify([query, options.organization]);
  const entry = path + JSON.stringify({ ...query, since: undefined });
  const [more, setMore] = useState({ key: '', rows: [], cursor: null, hasMore: false, loading: false, error: null });
  const [arrived, setArrived] = useState(nothing);
  const get = (cursor, signal, most = limit) => api.get(path, { ...options, signal, query: { limit: most, cursor, ...query } });
  const first = useLoad(async (signal) => {
    const wanted = history.state?.rows?.[entry] ?? limit; // as many as were shown here
    const page = await get(null, signal, Math.min(wanted, mostRows));
    while (page.data.length < wanted && page.has_more) {
      const next = await get(page.next_cursor, signal);
      Object.assign(page, next, { data: [...page.data, ...next.data] });
    }
    setArrived(nothing);
    setMore({ key, rows: page.data, cursor: page.next_cursor, hasMore: page.has_more, loading: false, error: null });
    return page;
  }, [key]);

  const show = ({ rows, cursor }) => setMore((m) => (cursor ? { ...m, rows, cursor, hasMore: true } : { ...m, rows: [...rows, ...m.rows] }));
  const current = useRef(null);
  current.current = more;
  useRepeat(async () => {
    if (more.key !== key) return undefined;
    try {
      const page = await get(null);
      if (current.current.key !== key) return undefined;
      const known = new Set(current.current.rows.map(id));
      const now = new Map(page.data.map((r) => [id(r), r]));
      const added = page.data.filter((r) => !known.has(id(r)));
      const hold = added.length > 0 && (scrollY > 80 || document.activeElement?.closest('tbody'));
      const fresh = { rows: added, cursor: added.length > 0 && added.length === page.data.length ? page.next_cursor : null };
      setArrived(hold ? fresh : nothing);
      setMore((m) => ({ ...m, rows: m.rows.filter((r) => page.has_more || now.has(id(r))).map((r) => now.get(id(r)) ?? r) }));
      if (!hold) show(fresh);
    } catch (error) {
      return error;
    }
  }, first.data ? poll : 0, [key]);

  const loadMore = async () => {
    setMore((m) => ({ ...m, loading: true, error: null }));
    try {
      const page = await get(more.cursor);
      if (current.current.key !== key) return;
      setMore((m) => ({ key, rows: [...m.rows, ...page.data], cursor: page.next_cursor, hasMore: page.has_more, loading: false, error: null }));
      history.replaceState({ ...history.state, rows: { [entry]: more.rows.length + page.data.length } }, '');
    } catch (error) {
      setMore((m) => ({ ...m, loading: false, error }));
    }
  };
  const showArrived = () => {
    show(arrived);
    setArrived(nothing);
    document.querySelector('h1')?.focus(); // a list does not move under who has the focus in it
    scrollTo(0, 0);
  };
  return { rows: first.data !== undefined ? more.rows : undefined, error: first.error, loading: first.loading,
    reload: first.reload, more, loadMore, arrived: arrived.rows.length, showArrived };
}

// useAction runs an asynchronous act once at a time: a double click does not send twice.
export function useAction(act) {
  const [state, setState] = useState({ busy: false, error: null });
  const running = useRef(false);
  const run = async () => {
    if (running.current) return;
    running.current = true;
    setState({ busy: true, error: null });
    let error = null;
    try {
      await act();
    } catch (refused) {
      error = refused;
    }
    running.current = false;
    setState({ busy: false, error });
  };
  return { ...state, run };
}
